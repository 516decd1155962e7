"""`transduce generate`: text from a language model."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from transduce.cli.options import (
    SEARCH,
    argument,
    check_exclusive,
    device_option,
    format_option,
    make_command,
    model_argument,
    option_group,
    place,
    search_method,
    search_options,
)
from transduce.cli.terminal import note, print_json

if TYPE_CHECKING:
    from transduce.inference.generator import Continuation, GenerationCounts

_EXAMPLES = """
transduce generate runs/author "Once upon a time"
transduce generate runs/author --max-length 500 --temperature 0.7 --seed 1
transduce generate runs/author --input prompts.txt --format json > continuations.jsonl
cat chapter.txt | transduce generate runs/author --whole --stop-at "THE END"
"""

_input = option_group("Input options")
_output = option_group("Output options")


@make_command(_EXAMPLES)
@model_argument
@argument("prompt", "Text to continue.", required=False)
@_input("--input", "file", metavar="FILE", help="File with one prompt per line; - is standard input.")
@_input("--whole", is_flag=True, help="Use the whole input as one prompt.")
@search_options("200", "Print N continuations of each prompt.", "0.8")
@format_option
@_output("--new-only", is_flag=True, help="Print the continuation without the prompt.")
@_output("--stream/--no-stream", default=None, help="Print text while it is generated (default: on a terminal).")
@device_option()
def command(run: str, prompt: str | None, n_best: int | None, output_format: str, **options: Any) -> None:
    """Continue PROMPT, or each line of the input, with the language model MODEL, a run or model folder.

    Without a prompt, a new document begins. Tokens are sampled with temperature 0.8 unless the model was saved with
    other search settings; --greedy and --beam-size search for the most probable text. A prompt longer than the context
    window loses its beginning. Greedy search and a single sample continue beyond the window, from its second half; beam
    search and several samples stop there.
    """
    from transduce.inference.load import load_generator

    given = {**options, "n_best": n_best, "format json": output_format == "json"}
    if prompt is not None and (options["file"] is not None or options["whole"]):
        raise click.UsageError("PROMPT and --input or --whole exclude each other")
    check_exclusive(given, "stream", "n_best", "format json")
    generator = load_generator(run)
    place(generator.model, options["device"], run)
    method = search_method(options)
    search = generator.options(n_best=n_best, method=method, **{name: options.get(name) for name in SEARCH})
    constraints = generator.constraints(options["forbid"], options["stop_at"])
    streams = options["stream"]
    if streams is None:
        streams = sys.stdout.isatty() and n_best is None and output_format == "text" and search.method != "beam"
    prompts = [prompt] if prompt is not None else _prompts(options["file"], options["whole"])
    if streams:
        _stream(generator.stream(text, search, constraints) for text in _shown(prompts, not options["new_only"]))
    else:
        from transduce.inference.padding import windows

        started = False
        for window in windows(prompts, 64):
            for text, several in zip(window, generator.continue_prompts(window, search, constraints), strict=True):
                if output_format == "json":
                    print_json(_object(text, several))
                    continue
                for one in several:
                    click.echo(("\n" if started else "") + ("" if options["new_only"] else text) + one.text)
                    started = True
    _summary(generator.counts)


def _prompts(file: str | None, whole: bool) -> Iterable[str]:
    """Return the prompts of a file or of standard input; the empty one if standard input is a terminal."""
    from transduce.text.lines import STDIN, read_lines

    if file is None and not whole and (sys.stdin is None or sys.stdin.isatty()):
        return [""]
    lines = read_lines(file or STDIN)
    if whole:
        return ["\n".join(lines)]
    first = next(lines, None)
    return [""] if first is None else _behind(first, lines)


def _behind(first: str, others: Iterator[str]) -> Iterator[str]:
    yield first
    yield from others


def _shown(prompts: Iterable[str], show: bool) -> Iterator[str]:
    """Print each prompt before its continuation."""
    for number, prompt in enumerate(prompts):
        click.echo(("\n" if number else "") + (prompt if show else ""), nl=False)
        yield prompt


def _stream(continuations: Iterable[Iterator[str]]) -> None:
    for pieces in continuations:
        for piece in pieces:
            click.echo(piece, nl=False)
            sys.stdout.flush()
        click.echo()


def _object(prompt: str, several: list[Continuation]) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "continuations": [
            {
                "text": one.text,
                "score": one.score,
                "log_probability": one.log_probability,
                "tokens": one.tokens,
                "ended": one.ended,
            }
            for one in several
        ],
    }


def _summary(counts: GenerationCounts) -> None:
    notes = {
        "prompts longer than the context window, shortened to their end": counts.shortened,
        "unknown tokens in prompts": counts.unknown,
    }
    for what, count in notes.items():
        if count:
            note(f"{what}: {count:,} ({counts.prompts:,} prompts in total)")
