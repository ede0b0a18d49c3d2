"""How torch computes: matrix products, attention, dropout, devices and seeds."""
