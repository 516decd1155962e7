"""`transduce embed`: a vector for every text."""

from __future__ import annotations

import json
from pathlib import Path

import click

_EXAMPLES = """
\b
Examples:
  transduce embed runs/bert sentences.txt --output vectors.npy
  transduce embed runs/bert sentences.txt --pool first --normalise > vectors.jsonl
"""


@click.command(epilog=_EXAMPLES)
@click.argument("run")
@click.argument("file", default="-")
@click.option(
    "--pool",
    type=click.Choice(["mean", "first", "pooled"]),
    default="mean",
    show_default=True,
    help="The mean of all tokens, the first token's vector, or what the model itself makes of that.",
)
@click.option("--normalise", is_flag=True, help="Make every vector of length one, so that products are cosines.")
@click.option("--output", metavar="FILE", help="An .npy array of float32, a row per line; JSON lines otherwise.")
def command(run: str, file: str, pool: str, normalise: bool, output: str | None) -> None:
    """Write a vector for each line of FILE, or of standard input, by the reader in RUN; in the order of the lines.

    A line with a tab in it is a pair of texts. However many lines there are, memory stays the same.
    """
    from transduce.errors import SettingsError
    from transduce.inference.load import load_reader
    from transduce.inference.text_encoder import VectorFile, of_lines, windows_of
    from transduce.text.lines import read_lines

    if output is not None and not output.endswith(".npy"):
        raise SettingsError(f"--output {output}: vectors are written as .npy; leave it out for JSON lines")
    reader = load_reader(run)
    numbered = ((number, line.split("\t", 1)) for number, line in enumerate(read_lines(file), start=1))
    found = (
        of_lines(lambda texts: reader.embed(texts, pool, normalise), dict(some), file) for some in windows_of(numbered)
    )
    if output is not None:
        with VectorFile(Path(output), reader.model.width) as vectors:
            for some in found:
                vectors.append(some)
        click.echo(f"{output}: {vectors.count:,} vectors of {reader.model.width}", err=True)
    else:
        for some in found:
            for vector in some.tolist():
                click.echo(json.dumps({"vector": vector}))
    if reader.cut:
        click.echo(f"note: {reader.cut:,} texts were longer than the model reads and lost {reader.lost}", err=True)
