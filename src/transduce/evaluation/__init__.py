"""Scores of translations and predictions, with confidence intervals and significance tests."""
