"""What users say about the words of translations: glossaries, phrases to contain or avoid, protected text."""
