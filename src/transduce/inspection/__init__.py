"""Looking inside: what passes the taps of a model, as numbers, pictures and a page."""
