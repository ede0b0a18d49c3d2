"""Engines that run the models: PyTorch, with or without compiled code."""
