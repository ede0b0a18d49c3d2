"""DeepL's API over the same service."""
