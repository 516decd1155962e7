"""Claims about attention and what came before it, each measured: numbers, a picture, and whether it holds."""
