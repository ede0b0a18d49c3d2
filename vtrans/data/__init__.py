"""Data: preparation/ makes a data folder, store.py reads it, and batches.py makes batches from it."""
