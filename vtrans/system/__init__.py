"""This process and others: processors, memory, signals, workers and ranks."""
