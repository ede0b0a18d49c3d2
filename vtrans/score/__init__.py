"""Metrics of translations."""
