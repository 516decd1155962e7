"""Files are read in blocks and standard input line by line; both must give the same lines and the same complaints."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.errors import DataError
from transduce.text import lines as line_module
from transduce.text.lines import read_lines

PIECES = [b"a", b"bc ", b"\n", b"\n\n", b"\r\n", b"\r", b"\xef\xbb\xbf", *map(str.encode, ("é", "e\u0301", "東"))]
ODD = [b"\0", b"\xff", b"\xe6\x9d", b"x" * 40]


def outcome(path: str) -> tuple[list[str], str | None]:
    lines: list[str] = []
    try:
        for line in read_lines(path):
            lines.append(line)
    except DataError as error:
        return lines, str(error).replace(path if path != "-" else "stdin", "it", 1)
    return lines, None


@given(
    content=st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join),
    odd=st.sampled_from([b"", *ODD]),
    rest=st.lists(st.sampled_from(PIECES), max_size=9).map(b"".join),
    block=st.sampled_from([1, 2, 7, 31, 1000]),
)
@settings(max_examples=200, deadline=None)
def test_blocks_give_the_same_as_single_lines(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, odd: bytes, rest: bytes, block: int
) -> None:
    path = tmp_path_factory.mktemp("lines") / "text"
    path.write_bytes(content + odd + rest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_module, "BLOCK_BYTES", block)
        patch.setattr(line_module, "MAX_LINE_BYTES", 37)
        patch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content + odd + rest)))
        assert outcome(str(path)) == outcome("-")
