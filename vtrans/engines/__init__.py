"""What runs the models: PyTorch, with or without compiled code."""
