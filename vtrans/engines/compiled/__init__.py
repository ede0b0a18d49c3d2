"""The decoder and the kernels of training in C++, and the decoder's Python binding."""

from pathlib import Path

_HEADERS = ("forced", "plain_search", "training", "batch", "rows", "model", "arithmetic", "products", "memory")
SOURCES = tuple(Path(__file__).with_name(name) for name in ("decoder.cpp", *(f"{name}.h" for name in _HEADERS)))
"""The file to compile, and its headers."""
