"""`transduce report`: one page about a training run, or about two."""

from __future__ import annotations

from pathlib import Path

import click

from transduce.errors import SettingsError

_EXAMPLES = """
\b
Examples:
  transduce report runs/de-en
  transduce report runs/new runs/old --output compared.html
"""


@click.command(epilog=_EXAMPLES)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("other", type=click.Path(path_type=Path), required=False)
@click.option("--against", type=click.Path(path_type=Path), metavar="RUN", help="The same as a second RUN.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default="report.html",
    metavar="FILE",
    help="Where the page is written.",
    show_default=True,
)
def command(run: Path, other: Path | None, against: Path | None, output: Path) -> None:
    """Write one page about the training run in RUN, which may still be going on, beside an OTHER one if it is named.

    Loss, validation, learning rate, gradient norm, tokens per second, memory, sample translations over time, every
    setting, and what was skipped: one HTML file that needs nothing else and asks nothing of the network.
    """
    from transduce.cli.terminal import visible
    from transduce.inspection.run_record import read_run
    from transduce.inspection.run_report import save_report
    from transduce.inspection.run_tables import state

    if other is not None and against is not None:
        raise SettingsError(f"a page compares two runs; name the other run once: report {run} {other}")
    runs = [read_run(folder) for folder in (run, other or against) if folder is not None]
    save_report(runs, output)
    for record in runs:
        facts = state(record)
        click.echo(visible(f"{record.folder}: {facts['updates']} updates, {facts['state']}"))
    click.echo(f"page  {visible(str(output))}")
