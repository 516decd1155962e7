"""`transduce demo`: train a Transformer to pronounce English words."""

from __future__ import annotations

from pathlib import Path

import click

from transduce.cli.options import make_command, option_group

_EXAMPLES = """
transduce demo
transduce demo --output runs/pronunciation
echo "thorough" | transduce translate runs/demo
"""


@make_command(_EXAMPLES)
@option_group("Output options")("--output", default="runs/demo", metavar="RUN", show_default=True, help="Run folder.")
def command(output: str) -> None:
    """Train a Transformer to pronounce English words, in about three minutes on two cores.

    Trains on 127,000 entries of the CMU pronouncing dictionary, evaluates the model on 5,000 words that it has not
    seen, and draws its attention.
    """
    from transduce.cli.progress import PreparationProgress, reporting
    from transduce.experiments.demo import run_demo

    with PreparationProgress() as progress, reporting() as reporter:
        for line in run_demo(Path(output), reporter, progress.show):
            click.echo(line)
