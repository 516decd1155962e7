"""`transduce read`: what a reader says about texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import click

_EXAMPLES = """
\b
Examples:
  transduce read runs/tagger sentences.txt
  echo "a fine film" | transduce read runs/sentiment --json
  transduce read runs/answers questions.tsv
"""
TOGETHER = 1024
"""Lines that are read together."""


@click.command(epilog=_EXAMPLES)
@click.argument("run")
@click.argument("file", default="-")
@click.option("--json", "as_objects", is_flag=True, help="One JSON value per line, with probabilities.")
def command(run: str, file: str, as_objects: bool) -> None:
    """Say of each line of FILE, or of standard input, what the reader in RUN was trained to say.

    A label with its probability (a second text stands behind a tab; of a story, the answer to its last sentence); a tag
    for each word; an answer with its place,
    for lines of question, tab and text; or what is missing where <mask> stands. One line in, one line out.
    """
    from transduce.inference.load import load_reader
    from transduce.inference.text_encoder import Answer, as_json, as_text, of_lines
    from transduce.text.lines import read_lines

    reader = load_reader(run)
    lines = enumerate(read_lines(file), start=1)

    def show(line: str, answer: Answer | None) -> str:
        if as_objects:
            return json.dumps(None if answer is None else as_json(answer), ensure_ascii=False)
        return "" if answer is None else "\t".join([as_text(answer), *_more(answer)])

    while some := list(islice(lines, TOGETHER)):
        asked = {
            number: _asked(reader.head, line, file, number, reader.reads_stories)
            for number, line in some
            if line.strip()
        }
        said = dict(zip(asked, of_lines(reader.read, asked, file), strict=True))
        for number, line in some:
            click.echo(show(line, said.get(number)))
    if reader.cut:
        click.echo(f"note: {reader.cut:,} texts were longer than the model reads and lost {reader.lost}", err=True)


def _asked(head: str, line: str, file: str, number: int, reads_stories: bool) -> Any:
    from transduce.errors import DataError
    from transduce.text.lines import shown

    parts = [part.strip() for part in line.split("\t")]
    if head == "span" and len(parts) != 2:
        raise DataError(f"{shown(file)}:{number}: is no question and text with a tab between them")
    if head == "labels" and not reads_stories and len(parts) > 2:
        raise DataError(
            f"{shown(file)}:{number}: has {len(parts)} columns; give a text, or two with a tab between them"
        )
    return line if head in ("tags", "language") else parts if len(parts) > 1 else line


def _more(answer: Any) -> Iterator[str]:
    """What stands behind the answer itself: its place, how sure it is."""
    if hasattr(answer, "start"):
        yield from (str(answer.start), str(answer.end))
    if hasattr(answer, "probability"):
        yield f"{answer.probability:.4f}"
