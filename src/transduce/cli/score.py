"""`transduce score`: how likely a model finds translations that are there already, and which of several is best."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import click

from transduce.cli.options import language_options

if TYPE_CHECKING:
    from transduce.inference.translator import Translator

_EXAMPLES = """
\b
Examples:
  transduce score runs/de-en --source test.de --target test.en
  transduce score runs/de-en --path pairs.tsv --jsonl > scores.jsonl
  transduce translate runs/small test.de --n-best 20 > list
  transduce score runs/large --source test.de --rerank list > best.en
  transduce score runs/author --text novel.txt --stride 32
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
@click.option("--n-best", "n_best", type=click.IntRange(1), metavar="N", help="With --rerank: print the N best.")
@click.option("--text", metavar="FILE", help="For a language model: plain text of any length (.gz too).")
@click.option("--document", type=click.Choice(["blank", "line", "file"]), help="What ends a document of it.")
@click.option("--stride", type=click.IntRange(1), metavar="N", help="Tokens that the window moves on; default: half.")
def command(
    run: str,
    ensemble: tuple[str, ...],
    rerank: str | None,
    jsonl: bool,
    n_best: int | None,
    to: str | None,
    of: str | None,
    text: str | None,
    document: str | None,
    stride: int | None,
    **files: Any,
) -> None:
    """Score pairs with the model in RUN: the log-probability of each target given its source, one line for each.

    Perplexity, per token with the end token, is said at the end, on standard error. With --text a language model scores
    plain text: a window slides over it, every token is scored once, and perplexity per token and per word and bits per
    byte are printed. Documents are what they were in training unless --document says otherwise.
    """
    if text is not None:
        if ensemble or rerank or n_best or to or of or any(files.values()):
            raise click.UsageError("--text is scored by one language model, and has no pairs, answers or languages")
        _score_text(run, text, document, stride, jsonl)
        return
    if document is not None or stride is not None:
        raise click.UsageError("--document and --stride belong to --text")
    if rerank is None and n_best is not None:
        raise click.UsageError("--n-best belongs to --rerank")
    if rerank is not None and (jsonl or files["target"] or files["path"] or not files["source"]):
        raise click.UsageError("--rerank takes --source, and the answers come from the list")
    from transduce.inference.translator import load

    translator = load(run, *ensemble)
    translator.languages.ask_for(to, of)
    if rerank is None:
        _score(translator, jsonl, **files)
    else:
        _rerank(translator, files["source"], rerank, n_best)


def _score(translator: Translator, jsonl: bool, **files: str | None) -> None:
    from transduce.evaluation.metrics import perplexity
    from transduce.inference.translator import windows
    from transduce.text.corpus import CorpusFiles, read_pairs

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
                target, lead = translator.target, translator.languages.lead().target
                pieces = target.pieces([*lead, *target.encode(text), target.end])
                row = {"log_probability": found.log_probability, "pieces": pieces, "scores": found.token_scores}
                click.echo(json.dumps(row, ensure_ascii=False))
            else:
                click.echo(f"{found.log_probability:.4f}")
    if scored:
        click.echo(f"{scored:,} pairs, {tokens:,} tokens, perplexity {perplexity(loss, tokens):.3f}", err=True)
    if too_long:
        click.echo(f"note: pairs too long for the model to read at once, not scored: {too_long:,}", err=True)


def _score_text(run: str, path: str, document: str | None, stride: int | None, as_json: bool) -> None:
    from transduce.errors import DataError
    from transduce.evaluation.metrics import bits_per_byte, finite, perplexity
    from transduce.inference.generator import load_generator
    from transduce.text.plain import TextFile, read_documents

    generator = load_generator(run)
    rule = document or generator.notes.get("document", "blank")
    file = TextFile.from_table({"text": path, "document": rule}, "the command line")
    pieces = (piece for piece in read_documents(file) if piece.text.strip() or file.document == "file")
    found = generator.score_text(pieces, stride)
    if not found.tokens or not found.words:
        raise DataError(f"{path}: has no words to score; check the file")
    loss = -found.log_probability
    facts = {
        "tokens": found.tokens,
        "words": found.words,
        "bytes": found.bytes,
        "log_probability": found.log_probability,
        "perplexity": perplexity(loss, found.tokens),
        "word_perplexity": perplexity(loss, found.words),
        "bits_per_byte": bits_per_byte(loss, found.bytes),
    }
    if as_json:
        click.echo(json.dumps({name: finite(value) for name, value in facts.items()}))
        return
    click.echo(f"{found.tokens:,} tokens, {found.words:,} words, {found.bytes:,} bytes")
    click.echo(f"perplexity per token {facts['perplexity']:.3f}, per word {facts['word_perplexity']:.3f}")
    click.echo(f"{facts['bits_per_byte']:.4f} bits per byte")


def _rerank(translator: Translator, source: str, path: str, n_best: int | None) -> None:
    from transduce.errors import DataError
    from transduce.inference.ranking import read_candidates, rerank
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
        for answer in ranked[: n_best or 1]:
            score = f"{answer.score:.4f}" if math.isfinite(answer.score) else "nan"
            click.echo(answer.text if n_best is None else f"{candidates.line} ||| {answer.text} ||| {score}")
    left = next(given, None)
    if left is not None:
        raise DataError(f"{path}: answers line {left.line}, which {source} does not have")
