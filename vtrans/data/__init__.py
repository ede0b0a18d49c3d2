"""Data: preparation/ makes a data folder, store.py reads it, batches.py makes batches from it."""
