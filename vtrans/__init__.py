"""vtrans: train and run Transformer translation models."""
