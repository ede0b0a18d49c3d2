"""Looking inside: what a model is made of, which subwords two languages share, where a translation looks."""
