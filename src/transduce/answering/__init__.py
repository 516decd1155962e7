"""What `Translator` is made of: texts cut into what a model reads, asked of an engine, and put together again."""
