"""Entry point: imports and runs the command, and turns every error into one sentence and an exit code.

`errors.py` lists the exit codes. The others are a shell's: 130 after Ctrl-C, 143 after SIGTERM, and 141, without a
message, when standard output is closed early (`| head`).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
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

COMMANDS = {
    "Train": {
        "demo": "Train a small model in about three minutes: pronunciation, or pronoun resolution.",
        "train": "Train, fine-tune or resume a model.",
        "pipeline": "Go from raw pairs to a small fast model in one command.",
        "report": "Write an HTML report of a training run, or compare two runs.",
        "cost": "Estimate the parameters, FLOPs and memory of a model.",
    },
    "Data": {
        "prepare": "Filter and tokenise a corpus into memory-mapped files.",
        "clean": "Remove or repair the pairs of a raw corpus that harm training.",
        "augment": "Add variants of pairs: capitals, typing errors, tags, terms.",
        "back-translate": "Make synthetic pairs from text in the target language.",
        "distil": "Make pairs for a small model from the translations of a large one.",
    },
    "Inference": {
        "translate": "Translate lines of text or a document.",
        "merge": "Merge the shards of a translation into one file.",
        "generate": "Generate text with a language model.",
        "predict": "Predict labels, tags, spans or masked words with a text encoder.",
        "embed": "Compute a vector for each text with a text encoder.",
        "serve": "Serve models over HTTP, with the APIs of LibreTranslate, DeepL and OpenAI.",
        "shortlist": "Build a lexical shortlist for faster translation.",
    },
    "Evaluate and inspect": {
        "evaluate": "Evaluate a model on a test set, or compare two models.",
        "score": "Compute log-probabilities and perplexity; rerank n-best lists.",
        "align": "Align the words of translations with those of their sources.",
        "inspect": "Show the attention of a model on one text.",
        "studio": "Watch a model work in the browser, and intervene in it.",
        "positions": "Plot the sinusoidal position encodings.",
        "reproduce": "Reproduce a claim of a paper: a table, a figure and a verdict.",
    },
    "Import and export": {
        "import": "Import a Hugging Face model or a GGUF file.",
        "export": "Export a model to CTranslate2, Hugging Face or ONNX.",
    },
}
"""The commands by topic, with one line on each; the module of a command is imported when the command is run."""

SHARED = {"embed": "predict", "import": "export", "positions": "inspect"}
"""Short commands in the module of another one, as functions such as `embed_command`."""

NAMES = tuple(name for commands in COMMANDS.values() for name in commands)

COMPLETION = """Shell completion:
  bash  eval "$(_TRANSDUCE_COMPLETE=bash_source transduce)"
  zsh   eval "$(_TRANSDUCE_COMPLETE=zsh_source transduce)"
  fish  _TRANSDUCE_COMPLETE=fish_source transduce | source
"""

PIPE_CLOSED = 128 + getattr(signal, "SIGPIPE", 13)
"""Exit code, as a shell counts it, when the program that reads our output ends; Windows does not name the signal."""
FIRST_COLLECTION = 400_000
"""Objects that exist when garbage is collected for the first time. To import PyTorch makes most of them, and they stay:
to look through them again and again meanwhile takes a quarter of the time of a short command."""
LONGEST_MESSAGE = 2000
"""Maximum length of a printed error in characters; file names and settings in it may be of any length."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C so that temporary files are removed."""


class Stopped(Exception):
    """A command ended by a signal or a closed pipe; the exit code is 128 plus the number of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class Commands(click.Group):
    """A group that imports a command only to run it: importing torch takes seconds."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(NAMES)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in NAMES:
            return None
        module = importlib.import_module(f"transduce.cli.{SHARED.get(name, name).replace('-', '_')}")
        command = getattr(module, f"{name}_command" if name in SHARED else "command")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in NAMES:
            raise click.UsageError(f"unknown command '{args[0]}'{suggestion(args[0], NAMES)}", context)
        return super().resolve_command(context, args)

    def invoke(self, context: click.Context) -> Any:
        """Run the command; click would otherwise print and exit by itself after a signal or a closed pipe."""
        try:
            return super().invoke(context)
        except Terminated:
            raise Stopped(signal.SIGTERM) from None
        except KeyboardInterrupt:
            raise Stopped(signal.SIGINT) from None
        except BrokenPipeError:
            raise Stopped(PIPE_CLOSED - 128) from None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, NAMES))
        for topic, commands in COMMANDS.items():
            with formatter.section(topic):
                formatter.write_dl([(f"{name:{width}}", line) for name, line in commands.items()])

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"\nRun `transduce COMMAND --help` for the options and examples of a command.\n\n{COMPLETION}")


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    import torch

    device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    threads = torch.get_num_threads()
    click.echo(f"transduce {__version__}, torch {torch.__version__}, {device}, {threads} thread{'s' * (threads != 1)}")
    context.exit()


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the versions of transduce and torch and exit.",
)
def transduce() -> None:
    """Train, run and inspect the Transformer and its relatives."""


def run(arguments: Sequence[str] | None = None, **extra: Any) -> int:
    """Run one command line and return its exit code; an error is printed as one line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        _check_encoding(arguments)
        outcome = transduce.main(args=list(arguments), prog_name="transduce", standalone_mode=False, **extra)
        sys.stdout.flush()
        return outcome if isinstance(outcome, int) else 0
    except TransduceError as error:
        return error.exit_code if error.reported else _print_error(str(error), error.exit_code, error.label)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return error.exit_code
    except click.ClickException as error:
        where = f" (see `{error.ctx.command_path} --help`)" if isinstance(error, click.UsageError) and error.ctx else ""
        return _print_error(_sentence(error) + where, error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _print_error("interrupted", 128 + signal.SIGINT, label="")
    except (Stopped, BrokenPipeError) as error:
        return _after_stop(error)
    except OSError as error:
        return _after_system_error(error)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not re.search("allocate memory|out of memory", str(error)):
            raise
        return _print_error("out of memory; use smaller batches (--batch-tokens) or a smaller model", 1)


def _sentence(error: click.ClickException) -> str:
    """Return click's message on one line; of surplus arguments, with those that the command takes."""
    message = error.format_message().replace("\n\t", " ")
    found = re.fullmatch(r"Got unexpected extra (arguments?) \((.*)\)", message)
    if found is None or not isinstance(error, click.UsageError) or error.ctx is None:
        return message
    given = " ".join(error.ctx.command.collect_usage_pieces(error.ctx)[1:])
    takes = f"{given} and options" if given else "options"
    return f"unexpected {found[1]} {found[2]}: `{error.ctx.command_path}` takes {takes}"


def _check_encoding(arguments: Sequence[str]) -> None:
    """Reject arguments that are not UTF-8; Python passes their bytes as lone surrogates, which cannot be printed."""
    for argument in arguments:
        if re.search("[\0\ud800-\udfff]", argument):
            raise click.UsageError(f"'{argument}' is not valid UTF-8 or has a NUL; rename the file or fix the text")


def _print_error(message: str, code: int, label: str = "error: ") -> int:
    message = visible(message)
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[: LONGEST_MESSAGE // 2]} … {message[-LONGEST_MESSAGE // 2 :]}"
    with contextlib.suppress(OSError):  # standard error is closed; the exit code remains
        click.echo(f"{label}{message}", err=True)
    return code


def _after_stop(stop: Stopped | BrokenPipeError) -> int:
    """Print what stopped the command, unless its output was closed early (`| head`)."""
    code = stop.exit_code if isinstance(stop, Stopped) else PIPE_CLOSED
    if code == PIPE_CLOSED:
        _discard_output()
        return code
    return _print_error("interrupted" if code == 128 + signal.SIGINT else "terminated", code, label="")


def _after_system_error(error: OSError) -> int:
    """Report a system error that no module handles, e.g. standard output on a full disk."""
    from transduce.storage.filesystem import DISK_FULL

    where = f"{error.filename}: " if error.filename else "standard output: "
    _discard_output()
    code = StorageError.exit_code if error.errno in DISK_FULL else MissingInput.exit_code
    return _print_error(f"{where}{error.strerror or error}", code)


def _discard_output() -> None:
    """Keep Python from flushing standard output at exit, which would fail again."""
    with contextlib.suppress(OSError):  # it may have no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _terminate(_: int, __: FrameType | None) -> None:
    raise Terminated


def _postpone_collection() -> None:
    """Collect no garbage before everything is imported, and as usual afterwards."""
    usual = gc.get_threshold()

    def restore(phase: str, _: dict[str, int]) -> None:
        if phase == "stop":
            gc.set_threshold(*usual)
            gc.callbacks.remove(restore)

    gc.callbacks.append(restore)
    gc.set_threshold(FIRST_COLLECTION)


def entry() -> None:
    """Console entry point."""
    _postpone_collection()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        getattr(sys, name).reconfigure(encoding="utf-8", errors="backslashreplace")
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    code = run()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)  # Python's own exit aborts while a thread waits for standard input
