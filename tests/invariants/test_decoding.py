"""The laws of search and of the model folder, over every model: what is found is what the model says, and stays so."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path

import pytest
import torch

from tests.invariants.cases import PAD, START, Case, draw_source, draw_target, draw_tokens, encode
from transduce.data.synthetic import symbol
from transduce.inference.scoring import score_targets
from transduce.inference.search.options import Hypothesis, Request, SearchOptions
from transduce.inference.search.penalty import LENGTH_PENALTIES
from transduce.inference.torch_engine import TorchEngine
from transduce.inference.translator import Translator
from transduce.model_folder import ModelFolder, load_model, save_model
from transduce.models.catalog import build
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.text.tokenizer.special import Specials
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

SOURCE = Specials(pad=PAD, start=START, end=1)
LENGTHS = [7, 1, 11, 3, 5]
NEAR = {"rel": 1e-5, "abs": 1e-5}
"""Scores are added up in float32."""


def sources(case: Case) -> list[list[int]]:
    """Sources of different lengths, without end."""
    return [row[:length].tolist() for row, length in zip(draw_source(case, LENGTHS), LENGTHS, strict=True)]


def answer(model: AnyTransducer, asked: list[list[int]], end: int, **options: object) -> list[list[Hypothesis]]:
    wished = SearchOptions.from_table({"max_length": 11, **options}, "a law")
    requests = [Request(number, source, wished) for number, source in enumerate(asked)]
    return TorchEngine(model, SOURCE, Specials(PAD, START, end)).translate(requests)


@pytest.fixture
def end(case: Case, model: AnyTransducer) -> int:
    """The end token: what this untrained model likes to say, so that some of its answers end and some do not."""
    found = answer(model, sources(case), end=0, method="greedy")
    message = Counter(token for hypotheses in found for token in hypotheses[0].tokens)
    return message.most_common(1)[0][0] if message else 0


def test_a_beam_of_one_is_greedy(case: Case, model: AnyTransducer, end: int) -> None:
    asked = sources(case)
    for one, greedy in zip(
        answer(model, asked, end, beam_size=1), answer(model, asked, end, method="greedy"), strict=True
    ):
        assert [hypothesis.tokens for hypothesis in one] == [hypothesis.tokens for hypothesis in greedy]
        assert one[0].score == pytest.approx(greedy[0].score, **NEAR)


@pytest.mark.parametrize("penalty", LENGTH_PENALTIES)
def test_the_score_of_a_hypothesis_is_that_of_its_tokens_in_forward(
    case: Case, model: AnyTransducer, end: int, penalty: str
) -> None:
    asked = sources(case)
    found = answer(model, asked, end, beam_size=5, n_best=3, length_normalization=penalty, length_penalty=0.7)
    ended = 0
    for source, hypotheses in zip(asked, found, strict=True):
        assert len(hypotheses) == 3
        for hypothesis in hypotheses:
            (scored,) = score_targets(model, [source], [hypothesis.tokens], SOURCE, Specials(PAD, START, end))
            message = scored.token_scores if hypothesis.ended else scored.token_scores[:-1]
            assert hypothesis.log_probability == pytest.approx(sum(message), **NEAR)
            divided = sum(message) / LENGTH_PENALTIES[penalty](len(message), 0.7)
            assert hypothesis.score == pytest.approx(divided, **NEAR)
            ended += hypothesis.ended
    assert ended, "the law must be tried on answers with an end too"


@pytest.mark.parametrize("options", [{"beam_size": 3, "n_best": 3}, {"method": "greedy"}], ids=["beam", "greedy"])
def test_a_batch_is_translated_as_its_sentences_alone(
    case: Case, model: AnyTransducer, end: int, options: dict[str, object]
) -> None:
    asked = sources(case)
    together = answer(model, asked, end, **options)
    for source, hypotheses in zip(asked, together, strict=True):
        (alone,) = answer(model, [source], end, **options)
        assert [(h.tokens, h.ended) for h in hypotheses] == [(h.tokens, h.ended) for h in alone]
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in alone], **NEAR)


@functools.cache
def words(size: int) -> Tokenizer:
    """A tokenizer that knows exactly so many tokens."""
    config = TokenizerConfig(kind="word", min_frequency=1, vocab_size=size)
    tokenizer = train_tokenizer("word", [" ".join(symbol(index) for index in range(size))], config)
    assert tokenizer.size == size
    return tokenizer


def tokenizers(sizes: VocabularySizes) -> tuple[Tokenizer, Tokenizer]:
    """One for both sides where both know as many tokens."""
    return words(sizes.source), words(sizes.target)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_save_load_save_gives_identical_files_and_outputs(case: Case, tmp_path: Path) -> None:
    """Bit by bit: every file, the manifest too, and what the loaded model computes."""
    model = build(case.config, case.sizes, seed=3).eval()
    notes = {"source_language": "xx", "target_language": None, "search": {"beam_size": 3}}
    first = ModelFolder(model, case.config, *tokenizers(case.sizes), notes)
    save_model(tmp_path / "first", first, "# a card: ä 東京\n")
    loaded = load_model(tmp_path / "first")
    save_model(tmp_path / "second", loaded, "# a card: ä 東京\n")
    files = contents(tmp_path / "first")
    assert contents(tmp_path / "second") == files
    joint = case.sizes.source == case.sizes.target
    names = {"tokenizer.json"} if joint else {"source.tokenizer.json", "target.tokenizer.json"}
    assert files.keys() == {"config.json", "model.safetensors", "README.md", "manifest.json", *names}

    assert (loaded.config, loaded.notes, loaded.model.sizes) == (case.config, notes, case.sizes)
    assert not loaded.model.training
    source, target = draw_source(case, LENGTHS), draw_target(case, len(LENGTHS), 13)
    with torch.no_grad():
        expected, found = (each.logits(each(target, encode(each, source))) for each in (model, loaded.model))
    assert torch.equal(found, expected)
    lines = ["a b c", "", "d e f g h i", "b"]
    if loaded.transducer.image_size is not None:  # what is no picture is refused
        pixels = draw_tokens(2, loaded.transducer.image_size**2, 17, seed=3).tolist()
        lines = [" ".join(map(symbol, row)) for row in pixels]
    assert Translator(loaded).translate(lines, max_length=5) == Translator(first).translate(lines, max_length=5)
