"""`transduce clean`: remove the pairs of a raw corpus that harm training, and repair what can be repaired."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from transduce.cli.corpus_options import corpus_language_options, corpus_languages, pair_corpus, pair_options
from transduce.cli.options import format_option, make_command, option_group
from transduce.cli.terminal import print_json
from transduce.config import Table, override, read_toml

_EXAMPLES = """
transduce clean --source raw.en --target raw.de --source-language en --target-language de --output clean
transduce clean --path memory.tmx --source-language en --target-language de --output clean
transduce clean --path raw.tsv --set similarity=0.9 --set language=false --output clean
transduce train --source clean/source.txt --target clean/target.txt --output runs/en-de
"""
_rules = option_group("Cleaning options")
_output = option_group("Output options")


@make_command(_EXAMPLES)
@pair_options
@corpus_language_options
@_rules("--settings", metavar="FILE", help="TOML file with a table [clean].")
@_rules(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of [clean]: max_length=500, similarity=0.9, language=false (repeatable).",
)
@_output("--output", required=True, metavar="FOLDER", help="Folder to write.")
@format_option
def command(output: str, output_format: str, **options: Any) -> None:
    """Clean a corpus: remove pairs that harm training, and repair misaligned ones.

    Removes pairs with an empty or very long side, few letters, equal sides, another language (py3langid, extra
    `clean`), an extreme length ratio, duplicates and near-duplicates, and pairs whose sides are not translations of
    each other. Repairs pairs whose sides are swapped, and lines that are shifted against each other. FOLDER gets
    source.txt and target.txt, removed.jsonl with every removed pair and the reason, and report.json.
    """
    from transduce.cli.progress import PreparationProgress
    from transduce.data.cleaning.outcome import report_lines
    from transduce.data.cleaning.rules import CleaningConfig
    from transduce.pipeline.corpora import clean_corpus

    table: Table = (
        read_toml(Path(options["settings"]), "a TOML file with a table [clean]").get("clean", {})
        if options["settings"]
        else {}
    )
    for assignment in options["assignments"]:
        table = override(table, assignment)
    rules = CleaningConfig.from_table(table, options["settings"] or "the command line")
    languages = corpus_languages(options)
    stated = languages.get("source_language"), languages.get("target_language")
    with PreparationProgress() as progress:
        report = clean_corpus([pair_corpus(options)], rules, stated, Path(output), progress.show)
    if output_format == "json":
        print_json(report)
        return
    for line in report_lines(report):
        click.echo(line)
    click.echo(f"written      {output}")
