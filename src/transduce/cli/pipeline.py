"""`transduce pipeline`: from raw pairs to a small fast model, in stages that resume and are cached."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from transduce.cli.options import argument, format_option, make_command, option_group
from transduce.cli.terminal import note, print_json
from transduce.errors import SettingsError, suggestion

if TYPE_CHECKING:
    from transduce.cli.progress import PreparationProgress
    from transduce.training.reporter import Reporter

_EXAMPLES = """
transduce pipeline pipeline.toml --output runs/en-de
transduce pipeline pipeline.toml --output runs/en-de --until clean
transduce translate runs/en-de/student-*/run input.en --precision int8
"""
_run = option_group("Run options")


@make_command(_EXAMPLES)
@argument("file", "TOML file with [data] and a table for each stage.", metavar="FILE")
@_run("--output", required=True, metavar="FOLDER", help="Folder of the stages; complete stages in it are reused.")
@_run("--until", metavar="STAGE", help="Stop after this stage.")
@format_option
def command(file: str, output: str, until: str | None, output_format: str) -> None:
    """Clean pairs, train a teacher, improve it by back-translation, distil a student, compress and compare them.

    The stages are clean, teacher, reverse, back-translate, mix, finish, distil, augment, student, compress and
    evaluate. Each has a folder named by a hash of its settings and of the contents of its inputs: a complete stage
    is not repeated, and an interrupted one resumes.
    """
    from transduce.cli.progress import PreparationProgress
    from transduce.pipeline.comparison import table_lines
    from transduce.pipeline.pipeline import Pipeline
    from transduce.pipeline.settings import read_pipeline
    from transduce.training.interruption import Interrupted

    config = read_pipeline(Path(file))
    if until is not None and until not in config.stages:
        raise SettingsError(f"--until {until}: {file} has no such stage{suggestion(until, config.stages)}")
    try:
        with PreparationProgress() as progress:
            done = Pipeline(config, Path(output), _Observer(progress)).run(until)
    except (KeyboardInterrupt, Interrupted):
        note("the stages so far are kept; run the same command again to resume the pipeline")
        raise
    if all(one.reused for one in done.values()):
        note(f"nothing to do: all {len(done)} stages are complete and their inputs and settings have not changed", "")
    if output_format == "json":
        stages = {name: {"folder": str(one.folder), "reused": one.reused, **one.facts} for name, one in done.items()}
        print_json(stages)
        return
    for name, one in done.items():
        click.echo(f"{name:15} {'reused' if one.reused else 'done':7} {one.seconds:9,.1f} s   {one.folder}")
    if "evaluate" in done:
        for line in table_lines(done["evaluate"].facts):
            click.echo(line)


class _Observer:
    """Prints what a pipeline does."""

    def __init__(self, progress: PreparationProgress) -> None:
        self._progress = progress

    def begin(self, stage: str, folder: Path, reused: bool) -> None:
        note(f"{stage}: {'complete already' if reused else f'writes {folder}'}", "")

    def progress(self, stage: str, count: int) -> None:
        self._progress.show(stage, count)

    def chosen(self, reason: str) -> None:
        note(reason, "chosen: ")

    def reporting(self) -> contextlib.AbstractContextManager[Reporter]:
        from transduce.cli.progress import reporting

        return reporting()
