"""Models that came before the Transformer, kept for comparison."""
