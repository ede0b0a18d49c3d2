"""Tensor files, model files and run folders. Only writing, and reading for training, needs torch."""
