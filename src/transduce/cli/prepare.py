"""`transduce prepare`: a corpus in, memory-mapped files and a report out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from transduce.cli.corpus import PreparationProgress, corpus_options, corpus_tables
from transduce.config import Table, merge, override, read_toml
from transduce.errors import SettingsError

_EXAMPLES = """
\b
Examples:
  transduce prepare --source train.de --target train.en --output prepared/de-en
  transduce prepare --path pairs.tsv.gz --test-path test.tsv --tokenizer unigram --vocab-size 4000 --output prepared/x
  transduce prepare --path large.tsv --mix path=small.tsv,weight=4 --output prepared/mixed
  transduce prepare --text corpus.txt --vocab-size 16000 --output prepared/text
  transduce prepare --recipe recipe.toml --set data.copies=drop --output prepared/y
"""


@click.command(epilog=_EXAMPLES)
@corpus_options
@click.option("--recipe", metavar="FILE", help="TOML file with the tables [data] and [tokenizer]; options go over it.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any setting, as data.max_length=100.")
@click.option("--tokenizer", metavar="KIND", help="bpe, unigram, wordpiece, word, character or byte.")
@click.option("--vocab-size", type=int, metavar="N", help="Most tokens of one tokenizer.")
@click.option("--joint/--separate", default=None, help="One tokenizer for both sides, or one for each.")
@click.option("--output", required=True, metavar="FOLDER", help="Folder to make; a prepared corpus there is replaced.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(output: str, as_json: bool, **options: Any) -> None:
    """Audit and tokenise a corpus into memory-mapped files.

    Reads pairs of text in a stream, leaves out what cannot be used, counts every pair left out with its reason, learns
    the tokenizer and writes everything into one folder that training reads. Memory does not grow with the corpus.
    Without a validation corpus some pairs are held out. What is not said of the tokenizer is chosen from the corpus,
    as `transduce train` does; but nothing is of standard input, which can be read once only.
    """
    from transduce.recipe import CHOSEN, choose_tokenizer, read_tokenizer_table
    from transduce.tasks.catalog import prepare, read_data_table
    from transduce.tasks.initial_checkpoint import given_tokenizers

    where = options["recipe"] or "the command line"
    recipe = read_toml(Path(options["recipe"])) if options["recipe"] else {}
    tables = _tables(recipe, options)
    data = read_data_table(tables["data"], f"{where}: [data]")
    chosen, reasons = tables["tokenizer"], list[str]()
    if not CHOSEN & recipe.keys():
        chosen, reasons = choose_tokenizer(data, chosen)
    tokenizer = read_tokenizer_table(data, chosen, f"{where}: [tokenizer]")
    for reason in reasons:
        click.echo(f"chosen: {reason}", err=True)
    with PreparationProgress() as progress:
        report = prepare(data, tokenizer, Path(output), progress.show, given_tokenizers(tokenizer))
    if as_json:
        import json

        click.echo(json.dumps(report.to_table(), ensure_ascii=False, indent=2))
        return
    for line in report.lines():
        click.echo(line)
    click.echo(f"prepared     {output}")


def _tables(recipe: Table, options: dict[str, Any]) -> dict[str, Table]:
    """Lay the options over the recipe."""
    _check_tables(recipe, options["recipe"])
    given: Table = {"data": {}, "tokenizer": {}}
    for name, corpus in corpus_tables(options).items():
        given["data"][name] = corpus
        recipe = {**recipe, "data": {**recipe.get("data", {}), name: {}}}  # files named here replace those there
    settings = {"kind": options["tokenizer"], "vocab_size": options["vocab_size"], "joint": options["joint"]}
    given["tokenizer"] = {name: value for name, value in settings.items() if value is not None}
    tables = merge({"data": {}, "tokenizer": {}, **recipe}, given)
    for assignment in options["assignments"]:
        tables = override(tables, assignment)
        _check_tables(tables, f"--set {assignment}")
    if not tables["data"].get("train"):
        raise SettingsError(
            "name the pairs to prepare: --source and --target, or --path, or --recipe; or plain text: --text"
        )
    return tables


def _check_tables(tables: Table, where: str) -> None:
    for name in ("data", "tokenizer"):
        if not isinstance(tables.get(name, {}), dict):
            raise SettingsError(f"{where}: '{name}' must be a table of settings, not {tables[name]!r}")
