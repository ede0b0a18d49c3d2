"""Training: trainer.py has the loop, optimization/learner.py makes an update, resume.py saves and restores a run."""
