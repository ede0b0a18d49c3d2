"""The loss, the optimizers, and parallel training: the parts of every update."""
