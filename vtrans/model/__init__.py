"""The network: the one model module of the package. Read network.py first, then layers.py and cache.py.

After a change to the network, torch runs it at once, and compiled code refuses to: engines/compiled/definitions.txt has
digests of these files. docs/how-it-works.md says how to change the C++ and its tests. The exporters in apps/interop
write weights by the names that state_dict() gives them, and refuse a setting that they do not list.
"""
