"""Search, incremental decoding, and translating streams of lines."""
