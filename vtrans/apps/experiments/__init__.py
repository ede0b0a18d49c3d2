"""Studies and chains: trainings that are run, compared and resumed by one file."""
