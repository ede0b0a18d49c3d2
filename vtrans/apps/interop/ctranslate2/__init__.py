"""Models from and for CTranslate2."""
