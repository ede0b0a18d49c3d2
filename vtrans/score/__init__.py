"""Translation metrics: BLEU, chrF, TER, COMET and numbers."""
