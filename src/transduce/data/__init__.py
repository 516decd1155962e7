"""Cleaning of raw corpora, prepared corpora, batches by token budget, synthetic tasks and the demo corpus."""
