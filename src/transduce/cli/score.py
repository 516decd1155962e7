"""`transduce score`: log-probabilities of given translations or text, and reranking of n-best lists."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from transduce.cli.corpus_options import UnusedUnits, pair_corpus, pair_options, select_languages
from transduce.cli.options import (
    check_exclusive,
    device_option,
    format_option,
    is_given,
    language_options,
    make_command,
    model_argument,
    option_group,
    place,
)
from transduce.cli.terminal import note, print_json

if TYPE_CHECKING:
    from transduce.inference.translator import Translator

_EXAMPLES = """
transduce score runs/de-en --source test.de --target test.en
transduce score runs/de-en --path pairs.tsv --format json > scores.jsonl
transduce translate runs/small test.de --n-best 20 > list
transduce score runs/large --source test.de --rerank list > best.en
transduce score runs/author --text novel.txt --stride 32
"""

_text = option_group("Language model options")
_rerank_group = option_group("Reranking options")


@make_command(_EXAMPLES)
@model_argument
@pair_options
@_text("--text", metavar="FILE", help="Score plain text of any length with a language model.")
@_text("--document", type=click.Choice(["blank", "line", "file"]), help="What ends a document (default: as trained).")
@_text("--stride", type=click.IntRange(1), metavar="N", help="Stride of the window in tokens (default: half of it).")
@_rerank_group("--rerank", metavar="FILE", help="N-best list, `line ||| text ||| …`; prints the best of each line.")
@_rerank_group("--n-best", type=click.IntRange(1), metavar="N", help="Print the N best of each line.")
@language_options
@option_group("Model options")(
    "--ensemble", multiple=True, metavar="MODEL", help="Average the probabilities with this model (repeatable)."
)
@device_option()
@format_option
def command(run: str, text: str | None, rerank: str | None, output_format: str, **options: Any) -> None:
    """Print the log-probability of each target given its source, by MODEL, a run or model folder.

    Perplexity per token, end token included, follows on standard error. With --text, a language model scores plain text
    with a sliding window and prints perplexity per token and per word, and bits per byte. With --format json, each pair
    is a JSON object with its tokens and their scores.
    """
    as_json = output_format == "json"
    given = {**options, "text": text, "rerank": rerank, "format json": as_json}
    pairs = ("source", "target", "path", "path_format")
    if text is not None:
        check_exclusive(given, "text", "ensemble", "rerank", "n_best", "source_language", "target_language", *pairs)
        _score_text(run, text, options["document"], options["stride"], options["device"], as_json)
        return
    for name, owner in (("document", "text"), ("stride", "text"), ("n_best", "rerank")):
        if is_given(options[name]) and not is_given(given[owner]):
            raise click.UsageError(f"--{name.replace('_', '-')} needs --{owner}")
    if rerank is not None:
        check_exclusive(given, "rerank", "target", "path", "path_format", "format json")
        if not options["source"]:
            raise click.UsageError("--rerank needs --source")
    from transduce.inference.load import load_translator

    translator = load_translator(run, *options["ensemble"])
    place(translator.model, options["device"], run)
    select_languages(translator, options)
    translator.read_images_from(None, options["path"] or options["source"])
    if rerank is None:
        _score(translator, as_json, options)
    else:
        _rerank(translator, options["source"], rerank, options["n_best"])


def _score(translator: Translator, as_json: bool, options: dict[str, Any]) -> None:
    from transduce.evaluation.metrics import perplexity
    from transduce.inference.padding import windows
    from transduce.text.corpus import read_pairs

    corpus, unused = pair_corpus(options), UnusedUnits()
    languages = translator.languages.source, translator.languages.target
    loss, tokens, scored, too_long = 0.0, 0, 0, 0
    for window in windows((pair.source, pair.target) for pair in read_pairs(corpus, languages, unused)):
        for (_, text), found in zip(window, translator.score(window), strict=True):
            if found is None:
                too_long += 1
                click.echo('{"log_probability": null}' if as_json else "nan")
                continue
            scored += 1
            loss -= found.log_probability
            tokens += len(found.token_scores)
            if as_json:
                target, lead = translator.target, translator.languages.prefix().target
                pieces = target.pieces([*lead, *target.encode(text), target.end])
                print_json({"log_probability": found.log_probability, "pieces": pieces, "scores": found.token_scores})
            else:
                click.echo(f"{found.log_probability:.4f}")
    if scored:
        note(f"{scored:,} pairs, {tokens:,} tokens, perplexity {perplexity(loss, tokens):.3f}", "")
    if too_long:
        note(f"pairs longer than the model's maximum, not scored: {too_long:,}")
    unused.note()


def _score_text(run: str, path: str, document: str | None, stride: int | None, device: str, as_json: bool) -> None:
    from transduce.errors import DataError
    from transduce.evaluation.metrics import bits_per_byte, finite, perplexity
    from transduce.inference.load import load_generator
    from transduce.text.corpus import TextFile, read_documents

    generator = load_generator(run)
    place(generator.model, device, run)
    rule = document or generator.notes.get("document", "blank")
    file = TextFile.from_table({"text": path, "document": rule}, "the command line")
    pieces = (piece for piece in read_documents(file) if piece.text.strip() or file.document == "file")
    found = generator.score_text(pieces, stride)
    if not found.tokens or not found.words:
        raise DataError(f"{path}: contains no words to score")
    loss = -found.log_probability
    values = {
        "tokens": found.tokens,
        "words": found.words,
        "bytes": found.bytes,
        "log_probability": found.log_probability,
        "perplexity": perplexity(loss, found.tokens),
        "word_perplexity": perplexity(loss, found.words),
        "bits_per_byte": bits_per_byte(loss, found.bytes),
    }
    if as_json:
        print_json({name: finite(value) for name, value in values.items()})
        return
    click.echo(f"{found.tokens:,} tokens, {found.words:,} words, {found.bytes:,} bytes")
    click.echo(f"perplexity per token {values['perplexity']:.3f}, per word {values['word_perplexity']:.3f}")
    click.echo(f"{values['bits_per_byte']:.4f} bits per byte")


def _rerank(translator: Translator, source: str, path: str, n_best: int | None) -> None:
    from transduce.inference.scoring import rerank_lists

    if source == path == "-":
        raise click.UsageError("only one of --source and --rerank can be standard input")
    for line, ranked in rerank_lists(translator, source, path, n_best or 1):
        for candidate in ranked:
            score = f"{candidate.score:.4f}" if math.isfinite(candidate.score) else "nan"
            click.echo(candidate.text if n_best is None else f"{line} ||| {candidate.text} ||| {score}")
