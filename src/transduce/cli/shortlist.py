"""`transduce shortlist`: which tokens are likely translations of which, counted over a corpus."""

from __future__ import annotations

import click

from transduce.cli.corpus import PreparationProgress

_EXAMPLES = """
\b
Examples:
  transduce shortlist runs/de-en
  transduce shortlist runs/de-en --per-token 50 --frequent 200 --output small.safetensors
  transduce shortlist models/de-en --source train.de --target train.en
  transduce translate runs/de-en input.de --shortlist runs/de-en/shortlist.safetensors
"""


@click.command(epilog=_EXAMPLES)
@click.argument("run")
@click.option("--output", metavar="FILE", help="Where to write. Default: shortlist.safetensors in RUN.")
@click.option("--per-token", type=click.IntRange(1), metavar="N", help="Candidates of each source token. Default: 100.")
@click.option("--frequent", type=click.IntRange(0), metavar="N", help="Frequent tokens for all. Default: 100.")
@click.option("--source", metavar="FILE", help="Sources of another corpus than the run's own, line by line.")
@click.option("--target", metavar="FILE", help="Their translations, line by line.")
def command(
    run: str, output: str | None, per_token: int | None, frequent: int | None, source: str | None, target: str | None
) -> None:
    """Count which target tokens translate which source tokens in the training data of RUN, and keep the likeliest.

    A search among them, `transduce translate --shortlist FILE`, has less to compute than one among all tokens. How
    much of the validation set's references could be written with them is printed.
    """
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
