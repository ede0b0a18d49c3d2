"""The built-in corpus: an English-German grammar that makes sentence pairs from a seed."""
