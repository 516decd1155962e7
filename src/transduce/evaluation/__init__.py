"""How good an answer is, how sure one can be of it, and what a model costs before it is trained."""
