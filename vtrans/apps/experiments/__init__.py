"""Studies and chains: one file describes several trainings to run, compare and resume."""
