"""What may be shown on a terminal: text from files and models must not be able to steer it."""

from __future__ import annotations

import unicodedata

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Categories of characters that steer rather than show: control, format, halves, private, unassigned, separators."""

PLAIN_SECONDS = 10.0
"""Between two plain lines about something that goes on, where there is no terminal."""


def visible(text: str) -> str:
    """Return text on one line, with every character that cannot be seen written as \\n, \\x1b or \\u202e."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character) in HIDDEN else character
        for character in text
    )
