"""The decoder in C++ and its binding."""
