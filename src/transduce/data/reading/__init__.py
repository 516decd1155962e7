"""What readers learn from: plain text with hidden pieces, labelled texts, tagged words, questions with answers."""
