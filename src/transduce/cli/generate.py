"""`transduce generate`: a language model goes on with a text, or begins one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from transduce.cli.options import SEARCH, method_of, search_options

if TYPE_CHECKING:
    from transduce.inference.generator import Continuation, Counts

_EXAMPLES = """
\b
Examples:
  transduce generate runs/author "Once upon a time"
  transduce generate runs/author --max-length 500 --temperature 0.7 --seed 1
  transduce generate runs/author --input prompts.txt --json > answers.jsonl
  cat chapter.txt | transduce generate runs/author --whole --stop-at "THE END"
"""


@click.command(epilog=_EXAMPLES)
@click.argument("run")
@click.argument("prompt", required=False)
@click.option("--input", "file", metavar="FILE", help="One prompt per line (.gz too; - is standard input).")
@click.option("--whole", is_flag=True, help="All of the input is one prompt.")
@search_options("; default: 200")
@click.option("--n-best", "n_best", type=int, metavar="N", help="Print N answers; --json has their scores.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a prompt: its continuations with their scores.")
@click.option("--new-only", is_flag=True, help="Print what follows a prompt without the prompt.")
@click.option("--stream/--no-stream", default=None, help="Print text as it grows; default: on a terminal.")
def command(run: str, prompt: str | None, file: str | None, whole: bool, n_best: int | None, **asked: Any) -> None:
    """Go on with PROMPT, or with each line of the input, by the language model in RUN (a run or model folder).

    An empty prompt, or none, begins a document. Each token is drawn by its probability at a temperature of 0.8, unless
    the model was saved with other wishes; --greedy and --beam look for the likeliest. Of a prompt longer than the model
    reads its end is read, which is said. A greedy search and a single sample write past the model's window: when it is
    full, they go on from the second half of it. A beam and several samples end there.
    """
    from transduce.inference.generator import load_generator

    if prompt is not None and (file is not None or whole):
        raise click.UsageError("give PROMPT, or prompts from the input (--input, --whole), not both")
    if asked["stream"] and (n_best is not None or asked["as_json"]):
        raise click.UsageError("--stream prints one answer as it grows: no --n-best, no --json")
    generator = load_generator(run)
    options = generator.options(n_best=n_best, method=method_of(asked), **{name: asked.get(name) for name in SEARCH})
    constraints = generator.constraints(asked["forbid"], asked["stop_at"])
    streams = asked["stream"]
    if streams is None:
        streams = sys.stdout.isatty() and n_best is None and not asked["as_json"] and options.method != "beam"
    prompts = [prompt] if prompt is not None else _prompts(file, whole)
    if streams:
        _stream(generator.stream(text, options, constraints) for text in _shown(prompts, not asked["new_only"]))
    else:
        from transduce.inference.translator import windows

        started = False
        for window in windows(prompts, 64):
            answers = generator.answer(window, options, constraints)
            for text, several in zip(window, answers, strict=True):
                if asked["as_json"]:
                    click.echo(json.dumps(_object(text, several), ensure_ascii=False))
                    continue
                for one in several:
                    click.echo(("\n" if started else "") + ("" if asked["new_only"] else text) + one.text)
                    started = True
    _summary(generator.counts)


def _prompts(file: str | None, whole: bool) -> Iterable[str]:
    """The prompts of a file or of standard input; on a terminal, where nothing was piped in, the empty one."""
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
    """Print each prompt before what follows it."""
    for number, prompt in enumerate(prompts):
        click.echo(("\n" if number else "") + (prompt if show else ""), nl=False)
        yield prompt


def _stream(answers: Iterable[Iterator[str]]) -> None:
    for pieces in answers:
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


def _summary(counts: Counts) -> None:
    notes = {
        "prompts longer than the model reads, of which the end was read": counts.shortened,
        "tokens of prompts unknown to the model": counts.unknown,
    }
    for what, count in notes.items():
        if count:
            click.echo(f"note: {what}: {count:,} ({counts.prompts:,} prompts in all)", err=True)
