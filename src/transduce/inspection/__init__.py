"""Attention maps of a model as arrays, figures and pages; cost estimates; reports of runs."""
