"""What runs the models: PyTorch or CTranslate2."""
