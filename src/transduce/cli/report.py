"""`transduce report`: one page about a training run, or about two."""

from __future__ import annotations

from pathlib import Path

import click

_EXAMPLES = """
\b
Examples:
  transduce report runs/de-en
  transduce report runs/new --against runs/old --output compared.html
"""


@click.command(epilog=_EXAMPLES)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--against", type=click.Path(path_type=Path), metavar="RUN", help="Another run, drawn into the same charts."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default="report.html",
    metavar="FILE",
    help="Where the page is written.",
    show_default=True,
)
def command(run: Path, against: Path | None, output: Path) -> None:
    """Write one page about the training run in RUN, which may still be going on.

    Loss, validation, learning rate, gradient norm, tokens per second, memory, sample translations over time, every
    setting, and what was skipped: one HTML file that needs nothing else and asks nothing of the network.
    """
    from transduce.cli.terminal import visible
    from transduce.inspection.run_record import read_run
    from transduce.inspection.run_report import save_report
    from transduce.inspection.run_tables import state

    runs = [read_run(folder) for folder in (run, against) if folder is not None]
    save_report(runs, output)
    for record in runs:
        facts = state(record)
        click.echo(visible(f"{record.folder}: {facts['updates']} updates, {facts['state']}"))
    click.echo(f"page  {visible(str(output))}")
