"""`transduce prepare`: filter and tokenise a corpus into memory-mapped files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from transduce.cli.corpus_options import corpus_languages, corpus_options, corpus_tables
from transduce.cli.options import format_option, make_command, option_group
from transduce.cli.terminal import note, print_json
from transduce.config import Table

_EXAMPLES = """
transduce prepare --source train.de --target train.en --output prepared/de-en
transduce prepare --path pairs.tsv.gz --test-path test.tsv --tokenizer unigram --vocab-size 4000 --output prepared/x
transduce prepare --path large.tsv --mix path=small.tsv,weight=4 --output prepared/mixed
transduce prepare --text corpus.txt --vocab-size 16000 --output prepared/text
transduce prepare --recipe recipe.toml --set data.copies=drop --output prepared/y
"""

_tokenizer = option_group("Tokenizer options (default: chosen from the corpus)")
_output = option_group("Output options")


@make_command(_EXAMPLES)
@corpus_options
@option_group("Corpus options")("--recipe", metavar="FILE", help="TOML file with [data] and [tokenizer].")
@option_group("Corpus options")(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any setting: data.max_length=100 (repeatable)."
)
@_tokenizer("--tokenizer", metavar="KIND", help="bpe, unigram, wordpiece, word, character or byte.")
@_tokenizer("--vocab-size", type=int, metavar="N", help="Maximum vocabulary size of one tokenizer.")
@_tokenizer("--joint/--separate", default=None, help="One tokenizer for both sides, or one for each.")
@_output("--output", required=True, metavar="FOLDER", help="Folder to write; a prepared corpus there is replaced.")
@format_option
def command(output: str, output_format: str, **options: Any) -> None:
    """Filter and tokenise a corpus into memory-mapped files.

    Reads the corpus as a stream, so that memory does not grow with it, removes pairs that cannot be used, counts each
    with its reason, trains the tokenizer and writes everything into one folder for `transduce train --prepared`.
    Without a validation corpus, part of the training corpus is held out. Settings of the tokenizer that are not given
    are chosen from the corpus, unless it is read from standard input.
    """
    from transduce.cli.progress import PreparationProgress
    from transduce.recipe import read_preparation
    from transduce.tasks.catalog import prepare
    from transduce.training.initial_checkpoint import given_tokenizers

    recipe = Path(options["recipe"]) if options["recipe"] else None
    data, tokenizer, reasons = read_preparation(recipe, options["assignments"], _base(options))
    for reason in reasons:
        note(reason, "chosen: ")
    with PreparationProgress() as progress:
        report = prepare(data, tokenizer, Path(output), progress.show, given_tokenizers(tokenizer))
    if output_format == "json":
        print_json(report.to_table(), indent=2)
        return
    for line in report.lines():
        click.echo(line)
    click.echo(f"prepared     {output}")


def _base(options: dict[str, Any]) -> Table:
    """Return the tables that the options name."""
    settings = {"kind": options["tokenizer"], "vocab_size": options["vocab_size"], "joint": options["joint"]}
    tokenizer = {name: value for name, value in settings.items() if value is not None}
    return {"data": {**corpus_tables(options), **corpus_languages(options)}, "tokenizer": tokenizer}
