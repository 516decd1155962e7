"""The door: finds the verb, loads only its module, and turns every error into one sentence and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from transduce import __version__
from transduce.errors import TransduceError, suggestion

VERBS = {
    "prepare": "Audit and tokenise a corpus into memory-mapped files.",
    "train": "Train a model from a recipe, or from two files of text.",
    "translate": "Translate lines: one in, one out, same order.",
    "evaluate": "Score a model on a test set, or compare two.",
    "inspect": "Show where the model looks while it translates a text.",
    "positions": "Draw the position encodings and their dot products.",
    "cost": "Parameters, FLOPs and memory of a model before it is trained.",
    "demo": "Learn to pronounce English from scratch, in about three minutes.",
}
"""The verbs and one line on each; the module of a verb is loaded when the verb is used."""


class Verbs(click.Group):
    """A group that knows its commands by name and imports one only to run it (torch takes seconds)."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command = importlib.import_module(f"transduce.cli.{name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in VERBS:
            raise click.UsageError(f"there is no command '{args[0]}'{suggestion(args[0], VERBS)}", context)
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    import torch

    device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    click.echo(f"transduce {__version__}, torch {torch.__version__}, {device}, {torch.get_num_threads()} threads")
    context.exit()


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show versions and exit.",
)
def transduce() -> None:
    """Train a sequence model on your own pairs of text, translate with it, look inside it."""


def run(arguments: Sequence[str] | None = None, **extra: Any) -> int:
    """Run one command line and return its exit code; prints at most one sentence on an error."""
    try:
        outcome = transduce.main(args=arguments, prog_name="transduce", standalone_mode=False, **extra)
        sys.stdout.flush()
        return outcome if isinstance(outcome, int) else 0
    except TransduceError as error:
        return _complain(str(error), error.exit_code)
    except click.ClickException as error:
        where = f" (see `{error.ctx.command_path} --help`)" if isinstance(error, click.UsageError) and error.ctx else ""
        return _complain(error.format_message() + where, error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _complain("interrupted", 130)
    except BrokenPipeError:
        return _after_closed_pipe()
    except MemoryError:
        return _complain("out of memory; use smaller batches (--set training.tokens=…) or a smaller model", 1)


def _complain(message: str, code: int) -> int:
    click.echo(f"error: {message}", err=True)
    return code


def _after_closed_pipe() -> int:
    """Whoever read our output has gone (`| head`): end quietly, and keep Python from complaining at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def entry() -> None:
    """Console entry point."""
    sys.exit(run())
