"""Adapting a model to texts of its users."""
