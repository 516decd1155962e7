"""The door: finds the verb, loads only its module, and turns every error into one sentence and an exit code.

The codes of errors are in `errors.py`. Besides, as a shell counts them: 130 after Ctrl-C, 143 after SIGTERM, and 141,
without a sentence, when whoever read the output has gone (`| head`).
"""

from __future__ import annotations

import contextlib
import importlib
import keyword
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import click

from transduce import __version__
from transduce.cli.terminal import visible
from transduce.errors import MissingInput, StorageError, TransduceError, suggestion

VERBS = {
    "prepare": "Audit and tokenise a corpus into memory-mapped files.",
    "train": "Train a model from a recipe, or from two files of text.",
    "report": "One page about a training run: curves, samples, settings.",
    "translate": "Translate lines: one in, one out, same order.",
    "generate": "Let a language model go on with a text, or begin one.",
    "score": "Log-probability of given translations; rerank n-best lists.",
    "align": "Which words of a translation belong to which of its source.",
    "evaluate": "Score a model on a test set, or compare two.",
    "read": "What a reader says of texts: labels, tags, answers, missing words.",
    "embed": "A vector for every text.",
    "shortlist": "Count which tokens are likely translations, for a faster search.",
    "import": "Make a model folder of Hugging Face's folder or a GGUF file.",
    "export": "Write a model for CTranslate2 or for Hugging Face.",
    "inspect": "Show where the model looks while it translates a text.",
    "positions": "Draw the position encodings and their dot products.",
    "cost": "Parameters, FLOPs and memory of a model before it is trained.",
    "reproduce": "Measure a claim about attention: a table, a picture, a verdict.",
    "demo": "Learn to pronounce English from scratch, in about three minutes.",
}
"""The verbs and one line on each; the module of a verb is loaded when the verb is used."""

LONGEST_MESSAGE = 2000
"""Characters of an error's sentence; somebody's file name or setting may be longer than anyone wants to read."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, which cleans up as Ctrl-C does."""


class Stopped(Exception):
    """The end of a command that a signal or its reader asked to end, in a shell's numbers: 128 + the signal's."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class Verbs(click.Group):
    """A group that knows its commands by name and imports one only to run it (torch takes seconds)."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        module = f"{name}_" if keyword.iskeyword(name) else name
        command = importlib.import_module(f"transduce.cli.{module}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in VERBS:
            raise click.UsageError(f"there is no command '{args[0]}'{suggestion(args[0], VERBS)}", context)
        return super().resolve_command(context, args)

    def invoke(self, context: click.Context) -> Any:
        """Run the verb; what click would print and exit for by itself is ours to word."""
        try:
            return super().invoke(context)
        except Terminated:
            raise Stopped(signal.SIGTERM) from None
        except KeyboardInterrupt:
            raise Stopped(signal.SIGINT) from None
        except BrokenPipeError:
            raise Stopped(signal.SIGPIPE) from None

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
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        _refuse_unreadable(arguments)
        outcome = transduce.main(args=list(arguments), prog_name="transduce", standalone_mode=False, **extra)
        sys.stdout.flush()
        return outcome if isinstance(outcome, int) else 0
    except TransduceError as error:
        return error.exit_code if error.said else _complain(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return error.exit_code
    except click.ClickException as error:
        where = f" (see `{error.ctx.command_path} --help`)" if isinstance(error, click.UsageError) and error.ctx else ""
        return _complain(error.format_message() + where, error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _complain("interrupted", 128 + signal.SIGINT)
    except (Stopped, BrokenPipeError) as error:
        return _after(error)
    except OSError as error:
        return _after_system_error(error)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not re.search("allocate memory|out of memory", str(error)):
            raise
        return _complain("out of memory; use smaller batches (--set training.batch_tokens=…) or a smaller model", 1)


def _refuse_unreadable(arguments: Sequence[str]) -> None:
    """Names and texts are UTF-8 here; Python hands over other bytes as lone surrogates, which nothing can print."""
    for argument in arguments:
        if re.search("[\0\ud800-\udfff]", argument):
            raise click.UsageError(f"'{argument}' is not UTF-8 text; rename the file or fix the text")


def _complain(message: str, code: int) -> int:
    message = visible(message)
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[: LONGEST_MESSAGE // 2]} … {message[-LONGEST_MESSAGE // 2 :]}"
    with contextlib.suppress(OSError):  # nobody is listening: the exit code says it all
        click.echo(f"error: {message}", err=True)
    return code


def _after(stop: Stopped | BrokenPipeError) -> int:
    """End as asked. When whoever read our output has gone (`| head`) there is nobody to tell."""
    code = stop.exit_code if isinstance(stop, Stopped) else 128 + signal.SIGPIPE
    if code == 128 + signal.SIGPIPE:
        _forget_output()
        return code
    return _complain("interrupted" if code == 128 + signal.SIGINT else "terminated", code)


def _after_system_error(error: OSError) -> int:
    """What no part of the program foresaw: standard output on a full disk, a path that the system refuses."""
    from transduce.storage.filesystem import DISK_FULL

    where = f"{error.filename}: " if error.filename else "the output: "
    _forget_output()
    code = StorageError.exit_code if error.errno in DISK_FULL else MissingInput.exit_code
    return _complain(f"{where}{error.strerror or error}", code)


def _forget_output() -> None:
    """Keep Python from writing what is left of standard output at exit, and from complaining that it could not."""
    with contextlib.suppress(OSError):  # it may have no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _terminate(_: int, __: FrameType | None) -> None:
    raise Terminated


def entry() -> None:
    """Console entry point."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        getattr(sys, name).reconfigure(encoding="utf-8", errors="backslashreplace")
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    code = run()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)  # a thread may still wait for standard input, on which Python's own way out aborts
