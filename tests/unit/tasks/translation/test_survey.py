"""What each side of a corpus is recognised as, from its lines alone."""

from __future__ import annotations

import random

import pytest

from transduce.errors import DataError
from transduce.tasks.translation.survey import Side, fitting_metrics, recognise, recognise_source, survey

LETTERS = "abcdefghijklmnopqrstuvwxyz"
CASES = ("NOM", "ACC", "DAT", "GEN", "INS", "AT+ESS")


def made(count: int, line: str) -> list[str]:
    """Lines of one kind."""
    draw = random.Random(7)

    def word() -> str:
        return "".join(draw.choice(LETTERS) for _ in range(draw.randint(3, 9)))

    prose = [word() for _ in range(400)]
    features = lambda: ["N", draw.choice(CASES), draw.choice(("SG", "PL"))]  # noqa: E731
    kinds = {
        "prose": lambda: " ".join(draw.choice(prose) for _ in range(draw.randint(5, 12))) + ".",
        "word": word,
        "names": lambda: f"{word().title()} {word().title()}",
        "features": lambda: f"{word()} {';'.join(features())}",
        "features first": lambda: f"{'|'.join(features())} {word()}",
        "spaced features": lambda: f"{word()} {' '.join(features())}",
        "symbols": lambda: " ".join(draw.choice(("K", "AH", "T", "IY")) for _ in range(6)),
        "japanese": lambda: "".join(chr(draw.randint(0x4E00, 0x4E80)) for _ in range(30)),
        "glued features": lambda: f"{word()}+{'+'.join(features())}",
        "bracketed features": lambda: f"{word()}{''.join(f'[{feature}]' for feature in features())}",
        "glossed features": lambda: f"{word()} {'.'.join(features())}",
        "exclamations": lambda: f"{draw.choice(CASES)} {word()}{draw.choice('.!?')}",
        "sums": lambda: f"{draw.randint(100, 999)} + {draw.randint(10, 99)}",
        "dated": lambda: f"{word()}-{draw.randint(10, 31)}-{draw.randint(10, 12)}",
        "numbers": lambda: " ".join(str(draw.randint(0, 999)) for _ in range(6)),
        "number words": lambda: " ".join(draw.choice(("seven", "hundred", "forty")) for _ in range(5)),
        "labels": lambda: draw.choice(("positive", "negative")),
        "segmented": lambda: " ".join(
            "".join(chr(draw.randint(0x4E00, 0x4E80)) for _ in range(draw.randint(1, 3))) for _ in range(9)
        ),
        "tags": lambda: f"{word()} {' '.join(f'<{feature}>' for feature in features())}",
        "dates": lambda: f"{draw.randint(1, 31)} {draw.choice(CASES)} {draw.randint(1900, 2050)}",
        "spelled": lambda: " ".join(chr(draw.randint(0x4E00, 0x4F80)) for _ in range(8)),
        "code": lambda: (
            f"{draw.choice(prose)}[{draw.choice(prose)}] = {draw.choice(prose)}({draw.choice(prose)}); // {word()}"
        ),
    }
    return [kinds[line]() for _ in range(count)]


@pytest.mark.parametrize(
    ("line", "kind", "what"),
    [
        ("prose", None, "text: tokens are subwords"),
        ("word", "character", "single words"),
        ("names", "character", "words are rare"),
        ("features", "feature", "';'"),
        ("features first", "feature", "'|'"),
        ("spaced features", "feature", "separated by spaces"),
        ("glued features", "feature", "separated by '+'"),
        ("bracketed features", "feature", "'['"),
        ("glossed features", "feature", "'.'"),
        ("exclamations", "character", "words are rare"),
        ("sums", "character", "mostly numbers"),
        ("dated", "character", "single words"),
        ("numbers", "character", "mostly numbers"),
        ("segmented", None, "is text: tokens are subwords"),
        ("symbols", "word", "4 different words"),
        ("japanese", None, "without spaces"),
        ("spelled", "word", "characters with spaces"),
        ("code", None, "code"),
    ],
)
def test_each_side_is_recognised_by_itself(line: str, kind: str | None, what: str) -> None:
    found = survey(list(zip(made(997, line), made(997, "prose"), strict=True)))
    side = recognise(found.source, found.pairs)
    assert side.kind == kind and what in side.what, side
    assert recognise(found.target, found.pairs).kind is None


def test_features_of_a_small_corpus_are_found() -> None:
    lines = made(97, "spaced features")
    assert recognise(survey(zip(lines, lines, strict=True)).source, 97).kind == "feature"


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [
        ("tags", "word", "character"),
        ("tags", "prose", None),
        ("dates", "word", "character"),
        ("dates", "symbols", "word"),
        ("prose", "word", "character"),
        ("symbols", "word", "word"),
        ("features", "word", "feature"),
    ],
)
def test_the_source_of_single_words_is_spelled(source: str, target: str, kind: str | None) -> None:
    assert recognise_source(survey(zip(made(997, source), made(997, target), strict=True))).kind == kind


def test_a_survey_counts_pairs_characters_words_and_different_words() -> None:
    found = survey([("a bb", "x"), ("a a a", "y z"), ("c", "x")])
    assert found.pairs == 3
    assert (found.source.characters, found.source.words, found.source.distinct_words) == (10 / 3, 2.0, 3)
    assert (found.target.characters, found.target.words, found.target.distinct_words) == (5 / 3, 4 / 3, 3)
    assert found.source.repeats == 2.0


def test_an_empty_corpus_is_rejected() -> None:
    with pytest.raises(DataError, match="empty"):
        survey([])


def test_a_few_short_sentences_are_text() -> None:
    """Their words repeat: in names they do not."""
    assert recognise(Side(14.0, 2.9, 301, repeats=5.8), 10_000).kind is None
    assert recognise(Side(14.0, 2.9, 301, repeats=1.4), 10_000).kind == "character"


@pytest.mark.parametrize(
    ("source", "target", "metrics"),
    [
        ("prose", "prose", ("bleu", "chrf")),
        ("word", "prose", ("bleu", "chrf")),
        ("prose", "japanese", ("chrf", "exact_match")),
        ("features", "word", ("exact_match", "chrf")),
        ("word", "symbols", ("word_error_rate", "phoneme_error_rate")),
        ("prose", "symbols", ("exact_match", "bleu")),
        ("word", "number words", ("exact_match", "bleu")),
        ("prose", "labels", ("exact_match",)),
        ("prose", "code", ("bleu", "exact_match")),
        ("prose", "spelled", ("bleu", "chrf")),
        ("prose", "segmented", ("bleu", "chrf")),
    ],
)
def test_the_metrics_fit_what_is_written(source: str, target: str, metrics: tuple[str, ...]) -> None:
    pairs = zip(made(3000, source), made(3000, target), strict=True)
    assert fitting_metrics(survey(pairs)) == metrics
