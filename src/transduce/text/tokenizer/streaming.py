"""The text of tokens while they are written: what is settled, and what further tokens may still change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

STREAM_WINDOW, STREAM_CONTEXT = 64, 24
"""Tokens that are decoded again with each new one, and how many of them are kept as context when the window moves."""


class StreamedText:
    """The text of a growing list of tokens, decoded in a window that moves along: linear time in all.

    A decoder may change the text of earlier tokens (a space, half a character), so a window moves only where its text
    is the same with and without the tokens before it.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], prompt: Sequence[int]) -> None:
        self._decode, self._prompt = decode, list(prompt)
        self._before = ""
        self._start, self._known = -len(prompt), 0
        """The window's first token, and its first new one, counted from the end of the prompt."""
        self._tries = STREAM_WINDOW

    def decode(self, written: Sequence[int]) -> tuple[str, str]:
        """Return the text of the tokens written so far: what is settled, and the rest."""
        tail = self._tail(written, self._start, self._known)
        if len(written) - self._known >= self._tries and not tail.endswith("\ufffd"):
            known = len(written) - STREAM_CONTEXT
            settled = self._tail(written[:known], self._start, self._known)
            start = known - STREAM_CONTEXT
            rest = self._tail(written, start, known)
            if settled + rest == tail:
                self._before, self._start, self._known, self._tries = (
                    self._before + settled,
                    start,
                    known,
                    STREAM_WINDOW,
                )
                return self._before, rest
            self._tries += STREAM_WINDOW
        return self._before, tail

    def _tail(self, written: Sequence[int], start: int, known: int) -> str:
        """The text after token `known`, decoded from token `start` on."""
        context = [*self._prompt[len(self._prompt) + start :], *written[:known]] if start < 0 else written[start:known]
        before, whole = self._decode(context), self._decode([*context, *written[known:]])
        return whole[len(before) :] if whole.startswith(before) else self._decode(written[known:])
