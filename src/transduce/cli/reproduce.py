"""`transduce reproduce`: claims and tables of papers, measured."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from transduce.cli.options import argument, language_options, make_command, option_group
from transduce.cli.terminal import note, visible

if TYPE_CHECKING:
    from transduce.experiments.finding import Finding

WIDTH = 110
"""Line length of prose."""

_EXAMPLES = """
transduce reproduce
transduce reproduce scaling --output measured
transduce reproduce head-roles --model runs/author --text sentences.txt
"""

_measurement = option_group("Measurement options")
_model = option_group("Model options")


@make_command(_EXAMPLES)
@argument("name", "Experiment to run.", required=False)
@option_group("Output options")(
    "--output",
    type=click.Path(path_type=Path),
    default="reproduced",
    show_default=True,
    metavar="FOLDER",
    help="Folder for NAME.json, NAME.md, NAME.svg and the runs of a study; existing runs are resumed.",
)
@_measurement(
    "--seed", type=click.IntRange(0, 2**31 - 1), default=1, show_default=True, metavar="N", help="Random seed."
)
@_measurement("--threads", type=click.IntRange(1, 1024), default=1, show_default=True, metavar="N", help="CPU threads.")
@_measurement("--quick", is_flag=True, help="Smaller models and less data: minutes instead of hours.")
@_measurement(
    "--data", type=click.Path(path_type=Path), metavar="FOLDER", help="Corpus to use instead of the default data."
)
@_model("--model", type=click.Path(path_type=Path), metavar="MODEL", help="Run or model folder, for head-roles.")
@_model("--text", metavar="FILE", help="Input of --model, one text per line (default: some English sentences).")
@language_options
def command(
    name: str | None,
    output: Path,
    seed: int,
    threads: int,
    quick: bool,
    data: Path | None,
    model: Path | None,
    text: str | None,
    target_language: str | None,
    source_language: str | None,
) -> None:
    """Run the experiment NAME. Without NAME, list the experiments.

    A claim takes from seconds to two minutes. A study trains many models and takes hours; it can be interrupted and
    resumed. Both print a table and a verdict, and write them with a figure. The verdict follows from the measured
    numbers and may contradict the claim.
    """
    from transduce.experiments.catalog import EXPERIMENTS, check, reproduce
    from transduce.experiments.finding import Conditions, Given

    if name is None:
        width = max(map(len, EXPERIMENTS))
        click.echo("\n".join(f"{each:{width}}  {entry.line}" for each, entry in EXPERIMENTS.items()))
        return
    if model is None and (text is not None or target_language is not None or source_language is not None):
        raise click.UsageError("--text, --source-language and --target-language need --model")
    conditions = Conditions(seed, threads, quick=quick, data=data, folder=output / name)
    if model is not None:
        conditions = replace(conditions, given=Given(model, None, target_language, source_language))
    check(name, conditions)
    if conditions.given is not None and text is not None:
        conditions = replace(conditions, given=conditions.given._replace(texts=_texts(text)))
    from transduce.cli.progress import PreparationProgress
    from transduce.errors import MissingInput
    from transduce.experiments import report as page

    with page.opened(output):
        with PreparationProgress() as progress:
            finding = reproduce(name, replace(conditions, report=progress.show))
        click.echo(report(finding))
        try:
            for path in page.save(finding, output, name):
                click.echo(visible(str(path)))
        except MissingInput as error:
            note(f"no figure: {error}")


def _texts(path: str) -> list[str]:
    from transduce.errors import DataError
    from transduce.text.lines import read_lines

    texts = [line for line in read_lines(path) if line.strip()]
    if not texts:
        raise DataError(f"{path}: contains no text")
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
