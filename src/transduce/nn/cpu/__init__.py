"""CPU optimisations: packed weights, fused losses, attention for short sentences."""
