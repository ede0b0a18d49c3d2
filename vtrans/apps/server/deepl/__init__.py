"""DeepL's interface over the same service."""
