"""`transduce distil`: pairs for a student, whose targets are translations by a teacher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from transduce.cli.corpus_options import pair_corpus, pair_options, select_languages
from transduce.cli.options import device_option, language_options, make_command, model_argument, option_group, place
from transduce.cli.terminal import note
from transduce.config import Table

_EXAMPLES = """
transduce distil runs/en-de --source train.en --target train.de --output distilled
transduce distil runs/en-de --path train.tsv --method interpolated --n-best 8 --beam-size 8 --output distilled
transduce train --source distilled/source.txt --target distilled/target.txt --preset student_6_2 --output runs/student
"""
_search = option_group("Search options")


@make_command(_EXAMPLES)
@model_argument
@pair_options
@language_options
@device_option()
@_search(
    "--method",
    type=click.Choice(["best", "n_best", "interpolated"]),
    default="best",
    show_default=True,
    help="Take the best translation, all of the n best, or the one nearest to the target by chrF.",
)
@_search("--n-best", type=int, metavar="N", help="Number of translations to compare or take (default: 4).")
@_search("--beam-size", type=int, metavar="N", help="Beam size (default: 4).")
@option_group("Output options")(
    "--output", required=True, metavar="FOLDER", help="Folder to write; an interrupted command resumes there."
)
def command(run: str, output: str, method: str, n_best: int | None, beam_size: int | None, **options: Any) -> None:
    """Make a student's training corpus: the sources of a corpus with their translations by MODEL, the teacher.

    This is sequence-level knowledge distillation (Kim and Rush 2016). FOLDER gets source.txt and target.txt. The given
    targets serve --method interpolated alone; text without translations is distilled by `transduce translate`.
    """
    from transduce.cli.progress import PreparationProgress
    from transduce.inference.load import load_translator
    from transduce.pipeline.corpora import distil, identify
    from transduce.pipeline.settings import Distillation
    from transduce.text.corpus import read_pairs

    if n_best is not None and method == "best":
        raise click.UsageError("--n-best is for --method n_best and interpolated")
    given: Table = {"method": method, "n_best": n_best, "beam_size": beam_size}
    config = Distillation.from_table(
        {name: value for name, value in given.items() if value is not None}, "the command line"
    )
    translator = load_translator(run)
    place(translator.model, options["device"], run)
    select_languages(translator, options)
    translator.use("auto")
    languages = translator.languages.source, translator.languages.target
    pairs = ((pair.source, pair.target) for pair in read_pairs(pair_corpus(options), languages) if pair.source.strip())
    with PreparationProgress() as progress:
        count = distil(translator, pairs, Path(output), config, progress.show, identify(run, translator))
    note(f"{count:,} pairs", "")
    click.echo(output)
