"""Lines, and the eight steps that translate them."""
