"""Decoding: translator.py translates lines, an engine runs the models, search.py and beam.py are the search."""
