"""Training: loss, optimizer, training loop, validation, checkpoints; stopping and resuming a run."""
