"""Devices, matrix products, memory, processes and signals: what vtrans needs of the machine."""
