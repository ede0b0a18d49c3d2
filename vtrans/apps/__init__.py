"""Applications of the translation system."""
