"""Translates lines: the translator, the stream of windows, and the steps of a line."""
