"""`transduce demo`: a Transformer learns English pronunciation from scratch, and shows what it learnt."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--output", default="runs/demo", metavar="RUN", help="Run folder.", show_default=True)
def command(output: str) -> None:
    """Learn to pronounce English words from the CMU dictionary, in about three minutes on two cores.

    Trains on 127,000 pronunciations, tries the model on 5,000 words it has never seen, and draws where it looked.
    """
    from transduce.cli.corpus import PreparationProgress
    from transduce.cli.display import reporting
    from transduce.experiments.demo import run_demo

    with PreparationProgress() as progress, reporting() as reporter:
        for line in run_demo(Path(output), reporter, progress.show):
            click.echo(line)
