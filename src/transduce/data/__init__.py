"""Prepared corpora, batches by token budget, synthetic tasks and the demo corpus."""
