"""What a recipe leaves out, chosen by what there is to learn from, with reasons; and what does not go together."""
