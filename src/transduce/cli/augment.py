"""`transduce augment`: variants of pairs that teach a model what its users write."""

from __future__ import annotations

from pathlib import Path

import click

from transduce.cli.options import make_command, option_group
from transduce.cli.terminal import note
from transduce.config import Table, override

_EXAMPLES = """
transduce augment --source distilled/source.txt --target distilled/target.txt --output augmented
transduce augment --source train.en --target train.de --set typos=0.1 --set terms=0.2 --set seed=2 --output augmented
"""
_corpus = option_group("Corpus options")


@make_command(_EXAMPLES)
@_corpus("--source", required=True, metavar="FILE", help="Sources, one per line.")
@_corpus("--target", required=True, metavar="FILE", help="Translations, one per line.")
@option_group("Augmentation options")(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="A setting: typos=0.1 (repeatable)."
)
@option_group("Output options")("--output", required=True, metavar="FOLDER", help="Folder to write.")
def command(source: str, target: str, assignments: tuple[str, ...], output: str) -> None:
    """Augment a corpus: write all its pairs, and noisy or annotated variants of some.

    Variants are in capitals, with typing errors, truncated, with a tag around a word and its translation, or with
    terms: `the bank <term>Ufer</term>`. They depend on the seed and the line number only. FOLDER gets source.txt and
    target.txt.
    """
    from transduce.data.augmentation import AugmentationConfig
    from transduce.pipeline.corpora import augment
    from transduce.text.corpus import CorpusFiles

    table: Table = {}
    for assignment in assignments:
        table = override(table, assignment)
    config = AugmentationConfig.from_table(table, "the command line")
    corpus = CorpusFiles.from_table({"source": source, "target": target}, "the command line")
    note(f"{augment(corpus, Path(output), config):,} pairs", "")
    click.echo(output)
