"""Model folders as Hugging Face writes them ⇄ ours, without Hugging Face's own code."""
