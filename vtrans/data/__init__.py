"""Parallel text, vocabularies, data folders and batches."""
