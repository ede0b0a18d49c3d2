"""Decoding: the search, the engines that run it, and the Translator of lines and streams."""
