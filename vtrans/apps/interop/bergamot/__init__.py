"""Models for Bergamot, the engine of Firefox's translations: Marian's networks with weights of 8 bits."""
