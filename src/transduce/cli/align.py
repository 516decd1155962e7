"""`transduce align`: which words of given translations belong to which words of their sources."""

from __future__ import annotations

from typing import Any

import click

from transduce.cli.options import language_options

_EXAMPLES = """
\b
Examples:
  transduce align runs/de-en --source test.de --target test.en > test.align
  transduce align runs/de-en --path pairs.tsv
  transduce translate runs/de-en input.de --align
"""


@click.command(epilog=_EXAMPLES)
@click.argument("run")
@language_options
@click.option("--source", metavar="FILE", help="Sources, line by line (.gz too).")
@click.option("--target", metavar="FILE", help="Their translations.")
@click.option("--path", metavar="FILE", help="TSV or JSONL pairs instead.")
@click.option("--format", type=click.Choice(["tsv", "jsonl"]), help="What --path is, where its name does not say it.")
def command(run: str, to: str | None, of: str | None, **files: Any) -> None:
    """Align pairs by the attention of the model in RUN, one line for each: `0-0 1-2`, source word first, from 0.

    Words are what stands between spaces. Every word of a translation is aligned to one of its source. A pair that is
    too long to be read at once gets an empty line, and is counted.
    """
    from transduce.inference.alignment import pharaoh
    from transduce.inference.translator import load, windows
    from transduce.text.corpus import CorpusFiles, read_pairs

    corpus = CorpusFiles.from_table({name: value for name, value in files.items() if value}, "the command line")
    translator, too_long = load(run), 0
    translator.languages.ask_for(to, of)
    for window in windows((pair.source, pair.target) for pair in read_pairs(corpus)):
        for links in translator.align(window):
            too_long += links is None
            click.echo(pharaoh(links or ()))
    if too_long:
        click.echo(f"note: pairs too long for the model to read at once, not aligned: {too_long:,}", err=True)
