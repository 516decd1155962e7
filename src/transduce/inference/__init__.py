"""Text in, text out: a model folder as a Translator, Generator or TextEncoder."""
