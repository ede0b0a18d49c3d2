"""Files of tensors, models and run folders. Only writing, and reading for training, needs torch."""
