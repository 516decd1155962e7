"""`transduce report`: an HTML report of a training run, or of two side by side."""

from __future__ import annotations

from pathlib import Path

import click

from transduce.cli.options import argument, format_option, make_command, option_group
from transduce.cli.terminal import print_json, visible

_EXAMPLES = """
transduce report runs/de-en
transduce report runs/new runs/old --output compared.html
"""


@make_command(_EXAMPLES)
@argument("run", "Run folder.", type=click.Path(path_type=Path))
@argument("other", "Run folder to compare with.", type=click.Path(path_type=Path), required=False)
@option_group("Run options")(
    "--against", type=click.Path(path_type=Path), metavar="RUN", help="Run folder to compare with; the same as OTHER."
)
@option_group("Output options")(
    "--output",
    type=click.Path(path_type=Path),
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="HTML page to write.",
)
@format_option
def command(run: Path, other: Path | None, against: Path | None, output: Path, output_format: str) -> None:
    """Write an HTML page about the training run in RUN, finished or not, side by side with OTHER if it is given.

    The page shows loss, validation scores, learning rate, gradient norm, speed, memory, sample translations, all
    settings, and what the corpus lost to filtering. It is one file that works offline.
    """
    from transduce.inspection.run_record import read_run
    from transduce.inspection.run_report import save_report, state

    if other is not None and against is not None:
        raise click.UsageError("give the second run once, as OTHER or with --against")
    runs = [read_run(folder) for folder in (run, other or against) if folder is not None]
    save_report(runs, output)
    states = [{"run": str(record.folder), **state(record)} for record in runs]
    if output_format == "json":
        print_json({"page": str(output), "runs": states})
        return
    for found in states:
        click.echo(visible(f"{found['run']}: {found['updates']} updates, {found['state']}"))
    click.echo(f"page  {visible(str(output))}")
