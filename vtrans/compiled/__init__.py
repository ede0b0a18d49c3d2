"""The decoder as compiled code, and its binding."""

from pathlib import Path

SOURCES = tuple(
    Path(__file__).with_name(name)
    for name in ("decoder.cpp", "forced.h", "batch.h", "rows.h", "model.h", "arithmetic.h", "products.h")
)
"""The file to compile, and those that it includes."""
