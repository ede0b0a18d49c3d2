"""Makes a data folder from parallel text; prepare.py calls the other modules."""
