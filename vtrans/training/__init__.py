"""Training: trainer.py is the loop, updates.py an update, resume.py saves and restores a run."""
