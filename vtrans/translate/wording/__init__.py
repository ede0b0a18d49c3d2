"""The wording of translations: glossaries, required and forbidden phrases, and protected text."""
