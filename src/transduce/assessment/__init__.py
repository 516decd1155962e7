"""A test set, a model, and what its answers are worth."""
