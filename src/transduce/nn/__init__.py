"""Blocks with plain arguments: no settings objects, no knowledge of models, data or files."""
