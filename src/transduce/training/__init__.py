"""Weights learn: what is minimised, how fast, how often it is checked, and how a run is stopped and taken up again."""
