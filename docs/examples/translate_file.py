"""Translate a file with a trained model, and print what happened to its lines.

    python docs/examples/translate_file.py RUN INPUT OUTPUT

The command `transduce translate RUN INPUT --output OUTPUT` does the same; this is how to do it from a program.
"""

from __future__ import annotations

import sys
from pathlib import Path

import transduce
from transduce.text.lines import read_lines


def main(run: str, source: str, output: str) -> None:
    """Translate line by line: same order, same number, empty lines stay empty."""
    translator = transduce.load(run)
    lines = list(read_lines(source))  # strict UTF-8, plain or gzip; "-" is standard input
    translations = translator.translate(lines, beam_size=4, max_extra=10)
    with Path(output).open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(" ".join(text.splitlines()) + "\n" for text in translations)
    counts = translator.counts
    print(f"{counts.lines} lines, {counts.empty} of them empty, {counts.split} translated in parts")
    print(
        f"{counts.unknown} source tokens were unknown, {counts.cut} translations were cut off at their maximum length"
    )


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: translate_file.py RUN INPUT OUTPUT")
    main(*sys.argv[1:])
