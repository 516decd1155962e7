"""Text encoding: labels, tags, answers and masked tokens of texts."""
