"""Models from and for Marian."""
