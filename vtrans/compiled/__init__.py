"""The decoder as compiled code, and its binding."""

from pathlib import Path

NAMES = ("decoder.cpp", "rows.h", "model.h", "arithmetic.h", "products.h")
SOURCES = tuple(Path(__file__).with_name(name) for name in NAMES)
"""The file to compile, and those that it includes."""
