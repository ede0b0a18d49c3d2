"""The search: the loop over batches, beam search and its rules, sampling."""
