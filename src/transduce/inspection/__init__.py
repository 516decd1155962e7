"""What passes the hook points of a model, as numbers, pictures and a page; cost estimates; reports of runs."""
