"""Search over hypotheses as a stepper: admit, advance, drop."""
