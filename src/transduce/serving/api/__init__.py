"""The HTTP APIs: each turns its own requests into jobs, and results into its own responses."""
