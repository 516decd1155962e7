"""States into tokens: search over `step`, scoring over `forward`. Written once, for every model of the catalog."""
