"""Export of models for Bergamot, Firefox's translation engine: Marian networks with 8-bit weights."""
