"""Exports of models to other engines."""
