"""Import and export of other programs' models: CTranslate2, Hugging Face, Marian and Bergamot."""
