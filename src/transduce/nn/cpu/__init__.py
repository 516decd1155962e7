"""What exists for speed on a CPU alone: packed weights, fused losses, attention for short sentences."""
