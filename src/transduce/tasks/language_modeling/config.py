"""The `[data]` table of a language model: plain text."""

from __future__ import annotations

from typing import ClassVar

from transduce.data.settings import PlainTextConfig


class LanguageModelingConfig(PlainTextConfig):
    """Plain text to train, validate and test on: `{text = "corpus.txt"}`.

    Each corpus is one stream of tokens with the end token before each document, which is cut into blocks.
    """

    kind: ClassVar[str] = "language_modeling"
