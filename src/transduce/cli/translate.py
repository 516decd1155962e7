"""`transduce translate`: lines in, lines out, same order, same number."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from transduce.cli.options import SEARCH, language_options, method_of, search_options

if TYPE_CHECKING:
    from transduce.inference.jobs.window import Answering
    from transduce.inference.translator import Translator
    from transduce.text.constraint import Constraints

MARKED_UP = ("po", "srt")
"""Kinds of files in which what looks like a tag or a placeholder is one."""

_EXAMPLES = """
\b
Examples:
  transduce translate runs/demo words.txt --output pronunciations.txt
  cat input.txt | transduce translate runs/de-en > output.txt
  echo "hello" | transduce translate runs/demo --beam-size 8 --n-best 3
  transduce translate runs/de-en big.txt.gz --output out.txt.gz
  transduce translate runs/de-en film.srt --output film.en.srt
  transduce translate runs/de-en rows.tsv --format tsv --field 2
  echo "hello" | transduce translate runs/demo --sample --top-p 0.9 --seed 1 --n-best 5
  transduce translate runs/many input.txt --to de
  transduce translate runs/en-de input.en --term bank=Ufer --placeholders
  transduce translate runs/de-en input.de --int8 --shortlist runs/de-en/shortlist.safetensors
"""


@click.command(epilog=_EXAMPLES)
@click.argument("run")
@language_options
@click.argument("file", default="-")
@click.option("--output", default="-", metavar="FILE", help="Where to write; .gz compresses. Default: standard output.")
@click.option("--n-best", "n_best", type=int, metavar="N", help="Print N answers as `line ||| text ||| score`.")
@click.option("--coverage", type=float, metavar="B", help="Prefer answers that looked at all of the source.")
@search_options("; default: the source's plus 50")
@click.option(
    "--format", type=click.Choice(["text", "tsv", "jsonl", "srt", "po"]), help="Default: by the name of FILE."
)
@click.option("--field", metavar="N|KEY", help="The column of a TSV file, or the key of JSONL, to translate in place.")
@click.option("--to-field", metavar="N|KEY", help="The column or key that says into which language, line by line.")
@click.option("--align", is_flag=True, help="Print which words belong together: `text ||| 0-0 1-2`, source first.")
@click.option("--stream", is_flag=True, help="Print answers as they grow, line by line.")
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
@click.option("--workers", type=click.IntRange(1, 1024), metavar="N", help="Of CTranslate2; default: what is fastest.")
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="Of each worker; default: what is fastest.")
@click.option("--mbr", type=click.IntRange(2, 256), metavar="N", help="Draw N answers; take what most agree with.")
@click.option("--ensemble", multiple=True, metavar="RUN", help="A further model that answers with RUN, by the mean.")
@click.option("--prefix", metavar="TEXT", help="Begin every answer like this.")
@click.option("--prefix-file", metavar="FILE", help="Begin each answer like the same line of FILE.")
@click.option("--term", multiple=True, metavar="WORD=TRANSLATION", help="Translate this word so; again for more.")
@click.option("--terms", metavar="FILE", help="The same from a file: word, tab, translation.")
@click.option(
    "--placeholders",
    is_flag=True,
    help="Copy {name}, %s, <tags>, addresses as they are; always so in .po and .srt.",
)
@click.option("--keep", multiple=True, metavar="REGEX", help="Copy what fits this as it is; again for more.")
def command(run: str, file: str, output: str, n_best: int | None, **asked: Any) -> None:
    """Translate lines of FILE, or of standard input, with the model in RUN (a run or model folder).

    One line in, one line out, in the same order; an empty line stays empty. A line of several sentences is translated
    sentence by sentence, and one longer than the model can read at once in parts; how many were is said at the end.
    Of subtitles (.srt), catalogues (.po), TSV and JSONL files only the text is translated, and the rest stays.
    From a file into a file: what was interrupted goes on where it was when the same command is given again.
    """
    from transduce.text.document import kind_of

    _refuse_contradictions(n_best, output, asked)
    if [file, asked["terms"], asked["prefix_file"]].count("-") > 1:
        raise click.UsageError("standard input can be read once: name files for all but one of FILE, terms, prefixes")
    kind = asked["format"] or kind_of(file)
    if kind != "text" and (n_best is not None or asked["prefix_file"] is not None or asked["align"] or asked["stream"]):
        raise click.UsageError(f"--n-best, --prefix-file, --align and --stream are for lines of text, not for {kind}")
    answering = _answering(run, kind, n_best, asked)
    if asked["stream"]:
        _stream(answering, file, asked)
    else:
        _bulk(answering, file, output, kind, {"run": run, "n_best": n_best, **asked})


def _answering(run: str, kind: str, n_best: int | None, asked: dict[str, Any]) -> Answering:
    """What is asked of every line, and of whom."""
    from transduce.inference.jobs.window import Answering
    from transduce.inference.ranking import consensus
    from transduce.inference.translator import load

    translator = load(run, *asked["ensemble"])
    translator.languages.ask_for(asked["to"], asked["of"])
    if asked["to_field"] is None:
        translator.languages.lead()  # says no before anything is read or written
    translator.use("ctranslate2" if asked["int8"] else asked["engine"], "int8" if asked["int8"] else "float32")
    translator.use_shortlist(asked["shortlist"])
    method = "sample" if asked["mbr"] else method_of(asked)
    wished = {name: asked[name] for name in SEARCH}
    answering = Answering(
        translator,
        translator.options(n_best=asked["mbr"] or n_best, method=method, **wished),
        _constraints(translator, kind, asked),
        split=not asked["no_split"],
        choose=list if asked["mbr"] is None else consensus,
        listed=n_best,
        prefixed=asked["prefix"] is not None or asked["prefix_file"] is not None,
        align=asked["align"],
        told=asked["to_field"] is not None,
    )
    if not _wants_ctranslate2(asked) or asked["stream"]:
        return answering
    nearest = answering.nearest([name for name in SEARCH if asked[name] is not None])
    if nearest is not answering:
        told = f"--length-penalty {nearest.options.length_normalization} --stop {nearest.options.stop_rule}"
        click.echo(f"note: CTranslate2 does not have this model's beam search; it searches with {told}", err=True)
    return nearest


def _wants_ctranslate2(asked: dict[str, Any]) -> bool:
    return bool(asked["int8"]) or asked["engine"] == "ctranslate2"


def _constraints(translator: Translator, kind: str, asked: dict[str, Any]) -> Constraints:
    """What is asked of the text of answers."""
    from transduce.text.constraint import USUAL, read_terms
    from transduce.text.corpus import read_lines

    every = () if asked["prefix"] is None else itertools.repeat(asked["prefix"])
    return translator.constraints(
        every if asked["prefix_file"] is None else read_lines(asked["prefix_file"]),
        asked["forbid"],
        read_terms(asked["term"], read_lines(asked["terms"]) if asked["terms"] else (), asked["terms"] or ""),
        (*(USUAL if asked["placeholders"] or kind in MARKED_UP else ()), *asked["keep"]),
        asked["stop_at"],
    )


def _stream(answering: Answering, file: str, asked: dict[str, Any]) -> None:
    """Print answers as they grow."""
    from transduce.inference.translator import one_line
    from transduce.text.corpus import read_lines

    for line in read_lines(file):
        for piece in answering.translator.stream(line, answering.options, answering.constraints, answering.split):
            click.echo(one_line(piece), nl=False)
            sys.stdout.flush()
        click.echo()
    if asked["prefix_file"] is not None:
        answering.constraints.refuse_leftovers()


def _bulk(answering: Answering, file: str, output: str, kind: str, asked: dict[str, Any]) -> None:
    """Translate window by window, and say at the end what happened to the lines."""
    from transduce.cli.progress import following
    from transduce.inference.jobs.job import Wish, translate
    from transduce.inference.jobs.source import Source, is_file
    from transduce.text.corpus import read_lines
    from transduce.text.document import ROWS, segments
    from transduce.text.lines import Meter

    engine, meter = answering.translator.engine, Meter()
    lines = read_lines(file, meter, normalised=kind not in ROWS)
    source = Source(segments(kind, lines, asked["field"], file, asked["to_field"]), meter)
    shown = output == "-" and sys.stdout.isatty()  # answers are progress enough
    size = Path(file).stat().st_size if is_file(file) and not shown else None
    with (
        _output(file, output, asked, engine.is_fast(answering.options)) as sink,
        following(size, "block" if kind in ("srt", "po") else "line") as follower,
    ):
        counts = translate(answering, source, sink, follower, file, Wish(asked["workers"], asked["threads"]))
        if asked["prefix_file"] is not None:
            answering.constraints.refuse_leftovers()
    if engine.fallen_back is not None and (_wants_ctranslate2(asked) or asked["workers"] is not None):
        click.echo(f"note: PyTorch searched: {engine.fallen_back}", err=True)
    _summary(counts)


def _refuse_contradictions(n_best: int | None, output: str, asked: dict[str, Any]) -> None:
    method_of(asked)
    if n_best is not None and n_best < 1:
        raise click.UsageError(f"--n-best {n_best}: there is at least one answer; choose 1 or more")
    if asked["prefix"] is not None and asked["prefix_file"] is not None:
        raise click.UsageError("give --prefix for all lines or --prefix-file for each, not both")
    if asked["mbr"] is not None and (asked["greedy"] or asked["beam"] is not None or (n_best or 1) > asked["mbr"]):
        raise click.UsageError(
            "--mbr chooses among the answers that it draws: no --greedy, no --beam, no larger --n-best"
        )
    if asked["align"] and (asked["placeholders"] or asked["keep"] or asked["mbr"] is not None):
        raise click.UsageError("--align is for what the model says: no --placeholders, no --keep, no --mbr")
    if asked["stream"] and (n_best is not None or asked["mbr"] is not None or asked["align"] or asked["keep"]):
        raise click.UsageError("--stream prints one answer as it grows: no --n-best, --mbr, --align or --keep")
    if asked["stream"] and (asked["placeholders"] or output != "-"):
        raise click.UsageError("--stream prints answers as they grow: no --placeholders, no --output")
    if asked["stream"] and (asked["field"] or asked["to_field"] or asked["threads"] is not None):
        raise click.UsageError("--stream reads lines of text, in one thread: no --field, --to-field or --threads")
    if asked["stream"] and (asked["int8"] or asked["engine"] == "ctranslate2" or asked["workers"] is not None):
        raise click.UsageError("--stream is PyTorch's alone: no --int8, --engine ctranslate2 or --workers")
    if asked["int8"] and asked["engine"] == "torch":
        raise click.UsageError("--int8 is for CTranslate2; leave out --engine torch")
    if asked["workers"] is not None and asked["engine"] == "torch":
        raise click.UsageError("--workers are CTranslate2's; with --engine torch give --threads")


def _summary(counts: Any) -> None:
    notes = {
        "lines without text, left empty": counts.empty,
        "texts of which the tokenizer leaves nothing, left empty": counts.unread,
        "lines of several sentences, translated one by one": counts.several,
        "lines longer than the model reads at once, translated in parts": counts.split,
        "translations cut off at the maximum length": counts.cut,
        "translations with a forbidden word all the same, in other pieces": counts.forbidden,
        "translations that lack a term that was asked for": counts.missing,
        "source tokens unknown to the model": counts.unknown,
    }
    for what, count in notes.items():
        if count:
            click.echo(f"note: {what}: {count:,} ({counts.lines:,} lines in all)", err=True)


@contextlib.contextmanager
def _output(source: str, output: str, asked: dict[str, Any], fast: bool) -> Iterator[Any]:
    """Open where answers go; of what an interruption left of them, say how to go on."""
    from transduce.inference.jobs.output import is_resumable, open_part, open_stream
    from transduce.inference.jobs.window import fingerprint

    if not is_resumable(source, output):
        with open_stream(output) as stream:
            yield stream
        return
    with open_part(output, fingerprint(asked, fast)) as part:
        try:
            yield part
        except BaseException:
            if part.done.segments:
                click.echo(f"note: what is done is in {part.path}; the same command goes on from there", err=True)
            raise
