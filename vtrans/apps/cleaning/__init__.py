"""Cleaning parallel text."""
