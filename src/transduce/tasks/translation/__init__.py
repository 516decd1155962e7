"""Translation: pairs of source and target."""
