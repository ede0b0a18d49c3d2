"""Import of Marian models."""
