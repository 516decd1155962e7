"""From raw pairs to a small fast model: stages that resume and are cached by content."""
