"""`transduce score`: how likely a model finds translations that are there already, and which of several is best."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import click

from transduce.cli.language import language_options

if TYPE_CHECKING:
    from transduce.translator import Translator

_EXAMPLES = """
\b
Examples:
  transduce score runs/de-en --source test.de --target test.en
  transduce score runs/de-en --path pairs.tsv --jsonl > scores.jsonl
  transduce translate runs/small test.de --n-best 20 > list
  transduce score runs/large --source test.de --rerank list > best.en
"""


@click.command(epilog=_EXAMPLES)
@click.argument("run")
@language_options
@click.option("--ensemble", multiple=True, metavar="RUN", help="A further model that scores with RUN, by the mean.")
@click.option("--source", metavar="FILE", help="Sources, line by line (.gz too).")
@click.option("--target", metavar="FILE", help="Their translations.")
@click.option("--path", metavar="FILE", help="TSV or JSONL pairs instead.")
@click.option("--format", type=click.Choice(["tsv", "jsonl"]), help="What --path is, where its name does not say it.")
@click.option("--jsonl", is_flag=True, help="One JSON object a pair, with its pieces and the score of each.")
@click.option("--rerank", metavar="FILE", help="An n-best list, `line ||| text ||| …`: print the best answer of each.")
@click.option("--n-best", "nbest", type=click.IntRange(1), metavar="N", help="With --rerank: print the N best.")
def command(
    run: str,
    ensemble: tuple[str, ...],
    rerank: str | None,
    jsonl: bool,
    nbest: int | None,
    to: str | None,
    of: str | None,
    **files: Any,
) -> None:
    """Score pairs with the model in RUN: the log-probability of each target given its source, one line for each.

    Perplexity, per token with the end token, is said at the end, on standard error.
    """
    if rerank is None and nbest is not None:
        raise click.UsageError("--n-best belongs to --rerank")
    if rerank is not None and (jsonl or files["target"] or files["path"] or not files["source"]):
        raise click.UsageError("--rerank takes --source, and the answers come from the list")
    from transduce.translator import load

    translator = load(run, *ensemble)
    translator.languages.ask_for(to, of)
    if rerank is None:
        _score(translator, jsonl, **files)
    else:
        _rerank(translator, files["source"], rerank, nbest)


def _score(translator: Translator, jsonl: bool, **files: str | None) -> None:
    from transduce.evaluation.perplexity import perplexity
    from transduce.text.corpus import CorpusFiles, read_pairs
    from transduce.translator import windows

    corpus = CorpusFiles.from_table({name: value for name, value in files.items() if value}, "the command line")
    loss, tokens, scored, too_long = 0.0, 0, 0, 0
    for window in windows((pair.source, pair.target) for pair in read_pairs(corpus)):
        for (_, text), found in zip(window, translator.score(window), strict=True):
            if found is None:
                too_long += 1
                click.echo(json.dumps({"log_probability": None}) if jsonl else "nan")
                continue
            scored += 1
            loss -= found.log_probability
            tokens += len(found.token_scores)
            if jsonl:
                pieces = translator.target.pieces([*translator.target.encode(text), translator.target.end])
                row = {"log_probability": found.log_probability, "pieces": pieces, "scores": found.token_scores}
                click.echo(json.dumps(row, ensure_ascii=False))
            else:
                click.echo(f"{found.log_probability:.4f}")
    if scored:
        click.echo(f"{scored:,} pairs, {tokens:,} tokens, perplexity {perplexity(loss, tokens):.3f}", err=True)
    if too_long:
        click.echo(f"note: pairs too long for the model to read at once, not scored: {too_long:,}", err=True)


def _rerank(translator: Translator, source: str, path: str, nbest: int | None) -> None:
    from transduce.errors import DataError
    from transduce.ranking import read_candidates, rerank
    from transduce.text.corpus import read_lines

    if source == path == "-":
        raise click.UsageError("sources and answers cannot both come from standard input")
    given = iter(read_candidates(read_lines(path), path))
    for number, text in enumerate(read_lines(source)):
        candidates = next(given, None)
        if candidates is None or candidates.line != number:
            raise DataError(
                f"{path}: has no answer to line {number} of {source}; every line needs one, if only an empty one"
            )
        ranked = rerank(translator, text, candidates.texts)
        for answer in ranked[: nbest or 1]:
            score = f"{answer.score:.4f}" if math.isfinite(answer.score) else "nan"
            click.echo(answer.text if nbest is None else f"{candidates.line} ||| {answer.text} ||| {score}")
    left = next(given, None)
    if left is not None:
        raise DataError(f"{path}: answers line {left.line}, which {source} does not have")
