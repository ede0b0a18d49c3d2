"""Makes a data folder of parallel text: prepare.py calls the others, one after another."""
