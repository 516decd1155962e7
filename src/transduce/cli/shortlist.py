"""`transduce shortlist`: likely translations of each source token, counted over a corpus."""

from __future__ import annotations

import click

from transduce.cli.options import make_command, model_argument, option_group

_EXAMPLES = """
transduce shortlist runs/de-en
transduce shortlist runs/de-en --per-token 50 --frequent 200 --output small.safetensors
transduce shortlist models/de-en --source train.de --target train.en
transduce translate runs/de-en input.de --shortlist runs/de-en/shortlist.safetensors
"""

_corpus = option_group("Corpus options (default: the training corpus of the run)")
_output = option_group("Output options")


@make_command(_EXAMPLES)
@model_argument
@_output("--output", metavar="FILE", show_default="shortlist.safetensors in MODEL", help="File to write.")
@_output("--per-token", type=click.IntRange(1), metavar="N", show_default="100", help="Candidates per source token.")
@_output(
    "--frequent",
    type=click.IntRange(0),
    metavar="N",
    show_default="100",
    help="Number of frequent tokens that are always candidates.",
)
@_corpus("--source", metavar="FILE", help="Sources of another corpus, one per line.")
@_corpus("--target", metavar="FILE", help="Their translations, one per line.")
def command(
    run: str, output: str | None, per_token: int | None, frequent: int | None, source: str | None, target: str | None
) -> None:
    """Build a lexical shortlist: the most likely target tokens of each source token in MODEL's training corpus.

    `transduce translate --shortlist FILE` restricts the vocabulary to it, which is faster. Prints what share of the
    tokens of the validation references it covers.
    """
    from transduce.cli.progress import PreparationProgress
    from transduce.tasks.translation.shortlist import FREQUENT, PER_TOKEN, make_shortlist
    from transduce.text.corpus import CorpusFiles

    files = {name: path for name, path in (("source", source), ("target", target)) if path is not None}
    corpus = CorpusFiles.from_table(files, "the command line") if files else None
    with PreparationProgress() as progress:
        made = make_shortlist(
            run,
            output,
            PER_TOKEN if per_token is None else per_token,
            FREQUENT if frequent is None else frequent,
            corpus,
            progress.show,
        )
    for line in made.lines():
        click.echo(line)
    click.echo(f"shortlist    {made.path}")
