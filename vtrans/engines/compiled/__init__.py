"""The decoder in C++ and its Python binding."""

from pathlib import Path

_HEADERS = ("forced", "plain_search", "batch", "rows", "model", "arithmetic", "products", "memory")
SOURCES = tuple(Path(__file__).with_name(name) for name in ("decoder.cpp", *(f"{name}.h" for name in _HEADERS)))
"""The file to compile, and its headers."""
