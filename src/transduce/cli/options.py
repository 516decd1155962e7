"""Commands whose help shows options under headings, and the options that several commands share."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from transduce import __version__
from transduce.cli.terminal import detail, note, set_verbosity, verbosity

if TYPE_CHECKING:
    from torch import nn

GENERAL = "General options"


class Option(click.Option):
    """An option of a group.

    `label` replaces the first column of the help page; with an empty label the option is not listed, because another
    line describes it. `show_default` appends `(default: …)` to the help text.
    """

    def __init__(self, *arguments: Any, group: str = GENERAL, label: str | None = None, **settings: Any) -> None:
        shown = settings.pop("show_default", False)
        if shown:
            default = shown if isinstance(shown, str) else settings["default"]
            settings["help"] = f"{settings['help'].removesuffix('.')} (default: {default})."
        super().__init__(*arguments, **settings)
        self.group, self.label = group, label

    def get_help_record(self, context: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(context)
        if record is None or self.label is None:
            return record
        return (self.label, record[1]) if self.label else None

    def get_help_extra(self, context: click.Context) -> Any:
        """Leave out ranges, which an error states where they matter."""
        return {name: value for name, value in super().get_help_extra(context).items() if name == "required"}


class Argument(click.Argument):
    """A positional argument with a line on the help page."""

    def __init__(self, *names: Any, text: str, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.group, self.text = "Arguments", text

    def get_help_record(self, context: click.Context) -> tuple[str, str]:
        return self.make_metavar(context), self.text


def argument(name: str, text: str, **settings: Any) -> Callable[[Any], Any]:
    """Add a positional argument."""
    return click.argument(name, cls=Argument, text=text, **settings)


model_argument = argument("run", "Run or model folder.", metavar="MODEL")
file_argument = argument("file", "Input file, also .gz (default: standard input).", default="-")


def option_group(title: str) -> Callable[..., Callable[[Any], Any]]:
    """Return a `click.option` whose options are listed under `title`."""
    return functools.partial(click.option, cls=Option, group=title)


class Command(click.Command):
    """A command with grouped options, examples, `--quiet` and `--verbose`."""

    def __init__(self, *arguments: Any, examples: str, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.examples = examples.strip("\n").splitlines()
        for names, change, text in (
            (("-q", "--quiet"), -1, "Print errors and results only, no progress and no notes."),
            (("-v", "--verbose"), 1, "Print more: versions, the model, the choice of engine, timings."),
        ):
            callback = functools.partial(_change_verbosity, change)
            self.params.append(Option(names, is_flag=True, expose_value=False, callback=callback, help=text))

    def invoke(self, context: click.Context) -> Any:
        began = time.monotonic()
        if verbosity() > 0:
            import torch

            detail(f"transduce {__version__}, torch {torch.__version__}, {torch.get_num_threads()} threads")
        result = super().invoke(context)
        detail(f"finished in {time.monotonic() - began:.1f} s")
        return result

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(context):
            record = parameter.get_help_record(context)
            if record is not None:
                groups.setdefault(getattr(parameter, "group", GENERAL), []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records, col_max=34)

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            indent = " " * formatter.current_indent
            for line in self.examples:
                formatter.write(indent + f" \\\n{indent}    ".join(_wrapped(line, formatter.width - 4)) + "\n")


def _wrapped(line: str, width: int) -> list[str]:
    """Break a command line before its options."""
    parts = [""]
    for word in re.split(r" (?=--|[|>])", line):
        if parts[-1] and len(parts[-1]) + len(word) >= width:
            parts.append(word)
        else:
            parts[-1] = f"{parts[-1]} {word}".lstrip()
    return parts


def _change_verbosity(change: int, context: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        set_verbosity(context, change)


def make_command(examples: str, name: str | None = None) -> Callable[[Any], Command]:
    """Make a function a command of the command line; `examples` are command lines, one per line."""
    return click.command(name, cls=Command, examples=examples)


# Output and device.

format_option = option_group("Output options")(
    "--format",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Print plain text or JSON.",
)


def device_option(title: str = "Model options") -> Callable[[Any], Any]:
    """Add `--device`."""
    return option_group(title)(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda", "mps"]),
        default="cpu",
        show_default=True,
        help="Device of the model; auto is the CPU, with a note if there is a GPU.",
    )


def place(model: nn.Module, device: str, run: str) -> str:
    """Move a model to the device of `--device` and return the device; `--verbose` prints both."""
    from transduce.models.interface import move, unused_gpu_note

    if unused := unused_gpu_note(device, "--device"):
        note(unused)
    device = move(model, device)
    size = sum(parameter.numel() for parameter in model.parameters())
    detail(f"{run}: {type(model).__name__} with {size:,} parameters on {device}")
    return device


def language_options(function: Any) -> Any:
    """Add `--source-language` and `--target-language`."""
    language = option_group("Model options")
    source = "Source language, for multilingual models that need it."
    target = "Target language of a multilingual model."
    function = language("--target-language", metavar="TAG", help=target)(function)
    return language("--source-language", metavar="TAG", help=source)(function)


# Search.

SEARCH = (
    "beam_size",
    "length_penalty",
    "length_normalization",
    "stop_rule",
    "max_length",
    "min_length",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "no_repeat_ngram_size",
    "coverage_penalty",
    "beam_groups",
    "diversity_penalty",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
)
"""Options with the name and the meaning of a setting of `[search]`."""

_search = option_group("Search options (the recipe of the model may set other defaults)")
SAMPLING = "Sampling options (each selects sampling)"
_sampling = option_group(SAMPLING)
greedy_option = _search("--greedy", is_flag=True, help="Greedy search: take the most probable token at each step.")
coverage_option = _search("--coverage-penalty", type=float, metavar="B", help="GNMT coverage penalty (default: 0).")
beam_size_option = _search("--beam-size", type=int, metavar="N", help="Beam size (default: 4).")


_SEARCH_OPTIONS: tuple[tuple[str, type, str, str], ...] = (
    ("--min-length", int, "N", "Minimum number of tokens to generate."),
    ("--length-penalty", float, "A", "Length penalty; 0 disables it (default: 0.6)."),
    ("--length-normalization", str, "NAME", "Divide scores by ((5 + n) / 6)^A (gnmt) or n^A (power) (default: gnmt)."),
    ("--stop-rule", str, "NAME", "When beam search stops: heuristic, beam_finished or exact (default: heuristic)."),
    ("--beam-groups", int, "N", "Diverse beam search: number of groups (default: 1)."),
    ("--diversity-penalty", float, "X", "Penalty for tokens that earlier groups chose (default: 0.5)."),
    ("--repetition-penalty", float, "X", "Divide the scores of tokens generated before by X."),
    ("--presence-penalty", float, "X", "Subtract X from the scores of tokens generated before."),
    ("--frequency-penalty", float, "X", "Subtract X for each time a token was generated before."),
    ("--no-repeat-ngram-size", int, "N", "Never repeat a sequence of N tokens."),
)
_SAMPLING_OPTIONS: tuple[tuple[str, type, str, str], ...] = (
    ("--top-k", int, "K", "Sample from the K most probable tokens."),
    ("--top-p", float, "P", "Nucleus sampling: sample from the smallest set of tokens with total probability P."),
    ("--min-p", float, "P", "Sample from tokens at least P times as probable as the most probable one."),
    ("--seed", int, "N", "Random seed of samples; beam search needs none."),
)


def search_options(max_length: str, n_best: str, temperature: str = "1.0") -> Callable[[Any], Any]:
    """Add the search options; `max_length` and `temperature` are defaults, `n_best` is what `--n-best` prints."""
    forbidden = "Never generate WORD or a word that begins with it (repeatable)."
    sample = "Sample each token from the model's distribution; --n-best N draws N samples."
    length = f"Maximum number of tokens to generate (default: {max_length})."
    options = (
        greedy_option,
        beam_size_option,
        _search("--n-best", type=int, metavar="N", help=n_best),
        _search("--max-length", type=int, metavar="N", help=length),
        *(_search(name, type=kind, metavar=value, help=text) for name, kind, value, text in _SEARCH_OPTIONS),
        _search(
            "--forbid",
            multiple=True,
            metavar="WORD",
            help=forbidden,
        ),
        _search("--stop-at", multiple=True, metavar="TEXT", help="Stop before TEXT (repeatable)."),
        _sampling("--sample", is_flag=True, help=sample),
        _sampling("--temperature", type=float, metavar="T", help=f"Sampling temperature (default: {temperature})."),
        *(_sampling(name, type=kind, metavar=value, help=text) for name, kind, value, text in _SAMPLING_OPTIONS),
    )

    def add(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def search_method(options: dict[str, Any]) -> str | None:
    """Return the search method that the options select, None for the model's own."""
    check_exclusive(options, "greedy", "sample", "beam_size")
    return "greedy" if options["greedy"] else "sample" if options.get("sample") else None


def check_exclusive(options: dict[str, Any], name: str, *others: str) -> None:
    """Reject an option together with any of the others."""
    for other in others:
        if is_given(options.get(name)) and is_given(options.get(other)):
            raise click.UsageError(f"{flag(name)} and {flag(other)} exclude each other")


def is_given(value: object) -> bool:
    """Whether an option has a value of the command line: not None, False or an empty tuple."""
    return value is not None and value is not False and value != ()


def flag(name: str) -> str:
    """Return `--n-best` for `n_best`."""
    return f"--{name.replace('_', '-')}"
