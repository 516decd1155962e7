"""`transduce align`: word alignments of given translations."""

from __future__ import annotations

from typing import Any

import click

from transduce.cli.corpus_options import UnusedUnits, pair_corpus, pair_options, select_languages
from transduce.cli.options import (
    device_option,
    format_option,
    language_options,
    make_command,
    model_argument,
    place,
)
from transduce.cli.terminal import note, print_json

_EXAMPLES = """
transduce align runs/de-en --source test.de --target test.en > test.align
transduce align runs/de-en --path pairs.tsv
transduce translate runs/de-en input.de --align
"""


@make_command(_EXAMPLES)
@model_argument
@pair_options
@language_options
@device_option()
@format_option
def command(run: str, device: str, output_format: str, **options: Any) -> None:
    """Align sources and translations word by word with the attention of MODEL, a run or model folder.

    Prints one line for each pair in Pharaoh format: `0-0 1-2`, source word first, counted from 0. Words are separated
    by spaces. Each target word is aligned to one source word. Pairs longer than the model's maximum get an empty line.
    """
    from transduce.inference.load import load_translator
    from transduce.inference.padding import windows
    from transduce.text.alignment import pharaoh
    from transduce.text.corpus import read_pairs

    corpus, unused = pair_corpus(options), UnusedUnits()
    translator, too_long = load_translator(run), 0
    place(translator.model, device, run)
    select_languages(translator, options)
    languages = translator.languages.source, translator.languages.target
    for window in windows((pair.source, pair.target) for pair in read_pairs(corpus, languages, unused)):
        for links in translator.align(window):
            too_long += links is None
            if output_format == "json":
                print_json({"alignment": links})
            else:
                click.echo(pharaoh(links or ()))
    if too_long:
        note(f"pairs longer than the model's maximum, not aligned: {too_long:,}")
    unused.note()
