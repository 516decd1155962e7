"""`transduce reproduce`: what is said about attention, measured."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from transduce.cli.options import language_options

if TYPE_CHECKING:
    from transduce.experiments.finding import Finding

WIDTH = 110
"""Characters of a line of prose."""


@click.command("reproduce")
@click.argument("name", required=False)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default="reproduced",
    metavar="FOLDER",
    help="Where NAME.json, NAME.md and NAME.svg are written.",
    show_default=True,
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=1, show_default=True, help="Of everything random.")
@click.option("--threads", type=click.IntRange(1, 1024), default=1, show_default=True, help="Of the computation.")
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Measure it on this run or model folder; for head-roles.",
)
@click.option("--text", metavar="FILE", help="What that model reads, a text a line; some English sentences otherwise.")
@language_options
def command(
    name: str | None,
    output: Path,
    seed: int,
    threads: int,
    model: Path | None,
    text: str | None,
    to: str | None,
    of: str | None,
) -> None:
    """Measure the claim NAME, seconds to two minutes; without a NAME, list the claims.

    Prints a table and whether the claim holds, and writes both with a picture. The verdict follows from the numbers
    and may come out against the claim.

    \b
    transduce reproduce
    transduce reproduce scaling --output measured
    transduce reproduce head-roles --model runs/author --text sentences.txt
    """
    from transduce.experiments.catalog import CLAIMS, find, find_for_model, reproduce
    from transduce.experiments.finding import Given

    if name is None:
        width = max(map(len, CLAIMS))
        click.echo("\n".join(f"{claim:{width}}  {line}" for claim, line in CLAIMS.items()))
        return
    given = None
    if model is not None:
        find_for_model(name, Given(model))
        given = Given(model, None if text is None else _texts(text), to, of)
    elif text is not None or to is not None or of is not None:
        raise click.UsageError("--text, --to and --from say what a given model is asked; give --model, too")
    else:
        find(name)
    from transduce.cli.corpus import PreparationProgress
    from transduce.cli.terminal import visible
    from transduce.errors import MissingInput
    from transduce.experiments import report as page

    with page.opened(output):
        with PreparationProgress() as progress:
            finding = reproduce(name, seed, threads, progress.show, given)
        click.echo(report(finding))
        try:
            for path in page.save(finding, output, name):
                click.echo(visible(str(path)))
        except MissingInput as error:
            click.echo(f"no picture: {error}", err=True)


def _texts(path: str) -> list[str]:
    from transduce.errors import DataError
    from transduce.text.lines import read_lines

    texts = [line for line in read_lines(path) if line.strip()]
    if not texts:
        raise DataError(f"{path}: has no text to look at")
    return texts


def report(finding: Finding) -> str:
    """Return the finding as plain text."""
    from transduce.cli.cost import aligned
    from transduce.experiments import report as page

    outcome, *checks = page.verdict_lines(finding)
    return "\n".join(
        [
            finding.title,
            textwrap.fill(f"Claim: {finding.claim}", WIDTH),
            "",
            aligned(page.table_text(finding)),
            "",
            textwrap.fill(f"Measured with {page.setting_text(finding)}.", WIDTH),
            outcome,
            *(textwrap.fill(check, WIDTH, initial_indent="  ", subsequent_indent="    ") for check in checks),
            "",
        ]
    )
