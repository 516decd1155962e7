"""Text: lines, corpora, documents, sentence splitting and tokenizers. No torch here."""
