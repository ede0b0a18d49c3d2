"""Text: reading lines, vocabularies and their subwords, words, languages, and similar texts."""
