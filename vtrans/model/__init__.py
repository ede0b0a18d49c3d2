"""The network. Read network.py first, then layers.py and cache.py.

torch runs a changed network immediately; compiled code refuses to, because engines/compiled/definitions.txt holds
digests of these files. docs/how-it-works.md says how to change the C++ and its tests. The exporters in apps/interop
write weights under their state_dict() names and refuse settings that they do not list.
"""
