"""Models for other engines."""
