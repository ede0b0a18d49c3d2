"""Training: the loop, the loss, checkpoints of a run and validation."""
