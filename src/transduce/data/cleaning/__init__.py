"""Cleaning of raw corpora of pairs."""
