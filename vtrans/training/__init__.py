"""Training: trainer.py has the loop, updates.py makes an update, resume.py saves and restores a run."""
