"""`transduce translate`: lines in, lines out, same order, same number."""

from __future__ import annotations

import contextlib
import itertools
import queue
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

import click

T = TypeVar("T")

WINDOW = 512
"""Lines that are sorted by length and translated together; a slow writer's lines are answered as they come."""

SEARCH = (
    "beam",
    "length_penalty",
    "alpha",
    "stop",
    "max_length",
    "min_length",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "no_repeat_ngram",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
)
"""Options that are handed to the search as they are."""

_EXAMPLES = """
\b
Examples:
  transduce translate runs/demo words.txt --output pronunciations.txt
  cat input.txt | transduce translate runs/de-en > output.txt
  echo "hello" | transduce translate runs/demo --beam 8 --n-best 3
  transduce translate runs/de-en film.srt --output film.en.srt
  transduce translate runs/de-en rows.tsv --format tsv --field 2
  echo "hello" | transduce translate runs/demo --sample --top-p 0.9 --seed 1 --n-best 5
  transduce translate runs/de-en input.de --int8 --shortlist runs/de-en/shortlist.safetensors
"""


@click.command(epilog=_EXAMPLES)
@click.argument("run")
@click.argument("file", default="-")
@click.option("--output", default="-", metavar="FILE", help="Where to write; .gz compresses. Default: standard output.")
@click.option("--greedy", is_flag=True, help="Take the best token each time; faster, a little worse.")
@click.option("--beam", type=int, metavar="N", help="Openings that a beam search keeps.")
@click.option("--n-best", "nbest", type=int, metavar="N", help="Print N answers as `line ||| text ||| score`.")
@click.option("--alpha", type=float, metavar="A", help="Strength of the length penalty; 0 switches it off.")
@click.option("--length-penalty", metavar="NAME", help="gnmt: ((5+n)/6)^A, or power: n^A.")
@click.option("--stop", metavar="NAME", help="When a beam search ends: settled, beam_finished or exact.")
@click.option("--max-length", type=int, metavar="N", help="Most tokens of an answer; default: the source's plus 50.")
@click.option("--min-length", type=int, metavar="N", help="Fewest tokens of an answer.")
@click.option("--repetition-penalty", type=float, metavar="X", help="Divide scores of tokens that were written by X.")
@click.option("--presence-penalty", type=float, metavar="X", help="Take X off a token's score once it was written.")
@click.option("--frequency-penalty", type=float, metavar="X", help="Take X off for each time that it was written.")
@click.option("--no-repeat-ngram", type=int, metavar="N", help="Write no N tokens in a row twice.")
@click.option("--sample", is_flag=True, help="Draw each token by its probability; --n-best draws several answers.")
@click.option("--temperature", type=float, metavar="T", help="Of a sample: below 1 safer, above 1 wilder.")
@click.option("--top-k", type=int, metavar="N", help="Draw from the N likeliest tokens.")
@click.option("--top-p", type=float, metavar="P", help="Draw from the likeliest tokens that have P together.")
@click.option("--min-p", type=float, metavar="P", help="Draw from tokens with P times the likeliest one's probability.")
@click.option("--seed", type=int, metavar="N", help="Draw the same answers again the next time.")
@click.option(
    "--format", type=click.Choice(["text", "tsv", "jsonl", "srt", "po"]), help="Default: by the name of FILE."
)
@click.option("--field", metavar="N|KEY", help="The column of a TSV file, or the key of JSONL, to translate in place.")
@click.option("--no-split", is_flag=True, help="Translate a line of several sentences as a whole.")
@click.option(
    "--engine",
    type=click.Choice(["auto", "torch", "ctranslate2"]),
    default="auto",
    help="What searches.",
    show_default=True,
)
@click.option("--int8", is_flag=True, help="With CTranslate2: weights of eight bits, faster and nearly as good.")
@click.option("--shortlist", metavar="FILE", help="Choose among likely tokens only; see `transduce shortlist`.")
@click.option("--mbr", type=click.IntRange(2, 256), metavar="N", help="Draw N answers; take what most agree with.")
@click.option("--ensemble", multiple=True, metavar="RUN", help="A further model that answers with RUN, by the mean.")
@click.option("--prefix", metavar="TEXT", help="Begin every answer like this.")
@click.option("--prefix-file", metavar="FILE", help="Begin each answer like the same line of FILE.")
@click.option(
    "--forbid", multiple=True, metavar="WORD", help="Not this word, nor what begins as it does; again for more."
)
def command(run: str, file: str, output: str, nbest: int | None, **asked: Any) -> None:
    """Translate lines of FILE, or of standard input, with the model in RUN (a run or model folder).

    One line in, one line out, in the same order; an empty line stays empty. A line of several sentences is translated
    sentence by sentence, and one longer than the model can read at once in parts; how many were is said at the end.
    Of subtitles (.srt), catalogues (.po), TSV and JSONL files only the text is translated, and the rest stays.
    """
    from transduce.ranking import consensus
    from transduce.text.corpus import read_lines
    from transduce.text.document import kind_of, segments
    from transduce.translator import load, one_line

    _refuse_contradictions(nbest, asked)
    mbr, prefix_file = asked["mbr"], asked["prefix_file"]
    translator = load(run, *asked["ensemble"])
    translator.use("ctranslate2" if asked["int8"] else asked["engine"], "int8" if asked["int8"] else "float32")
    translator.use_shortlist(asked["shortlist"])
    method = "greedy" if asked["greedy"] else "sample" if asked["sample"] or mbr else None
    options = translator.options(nbest=mbr or nbest, method=method, **{name: asked[name] for name in SEARCH})
    every = () if asked["prefix"] is None else itertools.repeat(asked["prefix"])
    constraints = translator.constraints(every if prefix_file is None else read_lines(prefix_file), asked["forbid"])
    kind = asked["format"] or kind_of(file)
    if kind != "text" and (nbest is not None or prefix_file is not None):
        raise click.UsageError(f"--n-best and --prefix-file are for lines of text, not for {kind}")
    choose = list if mbr is None else consensus
    number = 0
    with _output(output) as sink:
        for window in _as_they_come(segments(kind, read_lines(file), asked["field"], file)):
            texts = [text for segment in window for text in segment.texts]
            found = iter(translator.answer(texts, options, constraints, not asked["no_split"], choose=choose))
            for segment in window:
                several = [next(found) for _ in segment.texts]
                if nbest is None:
                    sink.write(segment.write([one_line(answers[0].text) for answers in several]))
                    continue
                for answer in several[0][:nbest]:
                    sink.write(f"{number} ||| {one_line(answer.text)} ||| {answer.score:.4f}\n")
                number += 1
            sink.flush()
        if prefix_file is not None:
            constraints.refuse_leftovers()
    if translator.engine.fallen_back is not None:
        click.echo(f"note: PyTorch searched: {translator.engine.fallen_back}", err=True)
    _summary(translator.counts)


def _refuse_contradictions(nbest: int | None, asked: dict[str, Any]) -> None:
    if asked["greedy"] and asked["sample"]:
        raise click.UsageError("--greedy takes the best token and --sample draws one; choose")
    if asked["prefix"] is not None and asked["prefix_file"] is not None:
        raise click.UsageError("give --prefix for all lines or --prefix-file for each, not both")
    if asked["mbr"] is not None and (asked["greedy"] or asked["beam"] is not None or (nbest or 1) > asked["mbr"]):
        raise click.UsageError(
            "--mbr chooses among the answers that it draws: no --greedy, no --beam, no larger --n-best"
        )
    if asked["int8"] and asked["engine"] == "torch":
        raise click.UsageError("--int8 is for CTranslate2; leave out --engine torch")


def _summary(counts: Any) -> None:
    notes = {
        "lines without text, left empty": counts.empty,
        "lines of several sentences, translated one by one": counts.several,
        "lines longer than the model reads at once, translated in parts": counts.split,
        "translations cut off at the maximum length": counts.cut,
        "translations with a forbidden word all the same, in other pieces": counts.forbidden,
        "source tokens unknown to the model": counts.unknown,
    }
    for what, count in notes.items():
        if count:
            click.echo(f"note: {what}: {count:,} ({counts.lines:,} lines in all)", err=True)


@contextlib.contextmanager
def _output(path: str) -> Iterator[IO[str]]:
    """Open standard output, or a file that appears only when it is whole."""
    if path == "-":
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield sys.stdout
        return
    import gzip

    from transduce.storage import file_aside

    with file_aside(Path(path)) as aside:
        if path.endswith(".gz"):
            with gzip.open(aside, "wt", encoding="utf-8", newline="\n") as file:
                yield file
        else:
            with aside.open("w", encoding="utf-8", newline="\n") as plain:
                yield plain


def _as_they_come(items: Iterator[T]) -> Iterator[list[T]]:
    """Yield windows of whatever has arrived: full ones from a file, small ones from somebody who types and waits."""
    arrived: queue.Queue[T | BaseException | None] = queue.Queue(maxsize=2 * WINDOW)

    def read() -> None:
        try:
            for item in items:
                arrived.put(item)
            arrived.put(None)
        except BaseException as error:  # handed over to the main thread, which raises it
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    ended = False
    while not ended:
        window: list[T] = []
        item = arrived.get()
        while True:
            if isinstance(item, BaseException):
                raise item
            if item is None:
                ended = True
                break
            window.append(item)
            if len(window) == WINDOW:
                break
            try:
                item = arrived.get(timeout=0.02)
            except queue.Empty:
                break
        if window:
            yield window
