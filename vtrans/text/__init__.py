"""Text: lines, subword vocabularies, words, sentences, numbers, letter case and languages."""
