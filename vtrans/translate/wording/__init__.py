"""The wording of translations: glossaries, phrases to contain or avoid, protected text."""
