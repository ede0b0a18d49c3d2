"""The network: the one model module of the package. Read network.py first, then layers.py and cache.py."""
