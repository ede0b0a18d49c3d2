"""Translation metrics: BLEU, chrF, TER and numbers."""
