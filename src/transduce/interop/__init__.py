"""Models of other projects ⇄ ours: what each weight is called elsewhere."""
