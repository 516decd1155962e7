"""Asking readers: answers in order, batches that change nothing, windows, vectors, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.errors import DataError, SettingsError
from transduce.inference import encoder_engine as reading
from transduce.inference.encoder_engine import AnswerSpan, EncoderEngine, LabelPrediction, MaskFill
from transduce.inference.text_encoder import TextEncoder, VectorFile, WordTag, as_json, as_text
from transduce.model_folder import ModelFolder
from transduce.models.bert import BertConfig
from transduce.models.catalog import build
from transduce.models.head import SpanHead
from transduce.models.interface import EncoderModel, Encoding, VocabularySizes
from transduce.text.encoder_input import context_windows, span_targets, tagging_inputs
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer.training import train_encoder_tokenizer

TEXTS = ["der hund bellt", "eine katze", "am alten tor steht ein sehr alter baum", "der", "ein hund steht am baum"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_encoder_tokenizer(TokenizerConfig(kind="wordpiece", vocab_size=60, min_frequency=1), TEXTS * 2)


def reader(tokenizer: Tokenizer, head: str, notes: dict[str, Any] | None = None) -> TextEncoder:
    config = BertConfig(model_dim=14, num_heads=2, ffn_dim=19, num_layers=1, max_positions=23, head=head, num_labels=3)
    sizes = VocabularySizes(tokenizer.size, tokenizer.size)
    model = build(config, sizes, seed=5).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3))
    return TextEncoder(ModelFolder(model, config, tokenizer, tokenizer, notes or {"labels": ["a", "b", "c"]}))


@pytest.mark.parametrize("head", ["labels", "tags", "span"])
def test_translations_come_in_order_and_do_not_depend_on_the_batch(
    tokenizer: Tokenizer, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = reader(tokenizer, head)
    asked: Any = [("wo ?", text) for text in TEXTS] if head == "span" else TEXTS
    together = model.predict(asked)
    monkeypatch.setattr(reading, "BATCH_TOKENS", 17)
    alone = [model.predict([one])[0] for one in asked]
    for first, second in zip(together, alone, strict=True):
        assert as_text(first) == as_text(second)
    assert str(as_json(together[0]))


def test_a_label_is_the_likeliest_with_its_probability(tokenizer: Tokenizer) -> None:
    model = reader(tokenizer, "labels")
    framed = tokenizer(TEXTS[0], "eine katze", return_tensors="pt")
    state: Encoding = model.model(framed["input_ids"], framed["attention_mask"].bool(), framed["token_type_ids"])
    assert model.model.head is not None
    expected = model.model.head(state).softmax(dim=-1)[0]
    (message,) = model.predict([(TEXTS[0], "eine katze")])
    assert isinstance(message, LabelPrediction)
    assert message.label == "abc"[int(expected.argmax())]
    assert message.probability == pytest.approx(float(expected.max().detach()))


def test_tags_are_one_for_each_word_however_long_the_sentence(tokenizer: Tokenizer) -> None:
    model = reader(tokenizer, "tags")
    words = [word for text in TEXTS * 5 for word in text.split()]
    found = model.predict([words, " ".join(words), []])
    assert as_text(found[0]) == as_text(found[1]) and found[2] == []
    assert [one.word for one in found[0] if isinstance(one, WordTag)] == words
    rows = tagging_inputs([[7] * 3, [8] * 2, [9] * 40, [5]], 8)
    assert rows == [([7, 7, 7, 8, 8], [1, 4]), ([9] * 6, [1]), ([5], [1])]


class Pointing(SpanHead):
    """Knows where the answer is: scores are read off the tokens themselves."""

    def __init__(self, wanted: list[int]) -> None:
        super().__init__(3)
        self.wanted, self.tokens = wanted, torch.zeros(0)

    def forward(self, reading: Encoding) -> torch.Tensor:
        first, last = (reading.states[..., 0] == token for token in (self.wanted[0], self.wanted[-1]))
        return torch.stack([first, last], dim=-1).double() * 9.0


class Echo(EncoderModel):
    """A reader whose vectors are its tokens."""

    def __init__(self, head: Pointing, limit: int) -> None:
        super().__init__()
        self.head, self.max_source = head, limit
        self.weight = torch.nn.Parameter(torch.zeros(1))

    @property
    def width(self) -> int:
        return 1

    def forward(self, tokens: Any, allowed: Any, segments: Any = None, layers: bool = False) -> Encoding:
        return Encoding(tokens[..., None].double(), allowed, None)


@pytest.mark.parametrize("limit", [12, 16, 64])
def test_an_answer_is_found_in_whichever_window_it_stands(tokenizer: Tokenizer, limit: int) -> None:
    context = "bellt der hund am tor eine katze steht am alten baum ein hund steht am tor sehr alter"
    for answer in ("alten baum", "bellt", "sehr alter"):
        engine = EncoderEngine(Echo(Pointing(tokenizer.encode(answer)), limit), tokenizer, stride=5)
        (found,) = engine.answer([("wo ?", context)])
        assert (found.text, context[found.start : found.end]) == (answer, answer)


def test_places_are_those_of_the_text_as_it_was_given(tokenizer: Tokenizer) -> None:
    """Characters that are several until NFC makes them one: accents, and the parts of Korean syllables."""
    for before in ("zoe\u0308 bellt e\u0301", "\u1112\u1161\u11ab", "a\u0302\u0323"):
        context = f"{before} am alten baum {before}"
        engine = EncoderEngine(Echo(Pointing(tokenizer.encode("alten baum")), 64), tokenizer)
        (found,) = engine.answer([("wo ?", context)])
        assert (found.text, context[found.start : found.end]) == ("alten baum", "alten baum")
        _, places = tokenizer.encode_with_offsets(context)
        assert (places[0][0], places[-1][1]) == (0, len(context))


def test_windows_cover_a_context_and_every_token_is_seen_best_by_one(tokenizer: Tokenizer) -> None:
    context = " ".join(TEXTS)
    tokens, places = tokenizer.encode_with_offsets(context)
    several = context_windows(tokenizer, "wo ?", context, 17, 4)
    assert len(several) > 2
    best = [
        place
        for window in several
        for place in window.offsets[window.inner[0] - window.first : window.inner[1] - window.first]
    ]
    assert best == places
    for window in several:
        assert len(window.tokens) <= 17 - 2
        for (start, end), token in zip(window.offsets, window.tokens[window.first - 1 :], strict=True):
            assert token == tokens[places.index((start, end))]
    assert span_targets(several[0], *places[-1]) == [0, 0]
    assert span_targets(several[0], *places[0]) == [several[0].first] * 2


def test_windows_do_not_multiply_however_much_they_should_overlap(tokenizer: Tokenizer) -> None:
    context = " ".join(TEXTS * 20)
    tokens = len(tokenizer.encode(context))
    room = 17 - 3 - len(tokenizer.encode("wo ?"))
    assert len(context_windows(tokenizer, "wo ?", context, 17, 1000)) <= tokens / (room // 4) + 1


def test_no_answer_is_predicted_only_where_that_was_trained(tokenizer: Tokenizer) -> None:
    nowhere = Pointing([tokenizer.start])
    for taught, expected in ((False, True), (True, False)):
        engine = EncoderEngine(Echo(nowhere, 30), tokenizer, allow_no_answer=taught)
        (found,) = engine.answer([("wo ?", "am tor")])
        assert bool(found.text) is expected and isinstance(found, AnswerSpan)
        assert (found.probability > 0.9) is taught


def test_what_is_missing_is_guessed_at_every_mask(tokenizer: Tokenizer) -> None:
    model = reader(tokenizer, "language", {})
    found = model.fill("der <mask> bellt am <mask>", top=3)
    assert len(found) == 2 and all(len(guesses) == 3 for guesses in found)
    assert isinstance(found[0][0], MaskFill) and found[0][0].probability >= found[0][1].probability
    assert model.predict(["der <mask> bellt am <mask>"])[0] == model.fill("der <mask> bellt am <mask>")
    with pytest.raises(DataError, match="mask token"):
        model.fill("der hund")
    with pytest.raises(DataError, match="shorten it"):
        model.fill("<mask> " * 30)
    with pytest.raises(SettingsError, match="not trained to fill"):
        reader(tokenizer, "tags").fill("<mask>")


def test_vectors_are_means_over_real_tokens(tokenizer: Tokenizer) -> None:
    model = reader(tokenizer, "none", {})
    vectors = model.embed(TEXTS)
    for text, vector in zip(TEXTS, vectors, strict=True):
        framed = tokenizer(text, return_tensors="pt")
        state = model.model(framed["input_ids"], framed["attention_mask"].bool())
        np.testing.assert_allclose(vector, state.states[0].mean(dim=0).detach(), atol=1e-5)
        np.testing.assert_allclose(model.embed([text], "first")[0], state.states[0, 0].detach(), atol=1e-5)
        np.testing.assert_allclose(model.embed([text], "pooled")[0], state.pooled[0].detach(), atol=1e-5)
    lengths = np.linalg.norm(model.embed(TEXTS, normalize=True), axis=1)
    np.testing.assert_allclose(lengths, 1.0, atol=1e-5)
    assert model.embed([]).shape == (0, 14)
    assert not np.allclose(model.embed([("der hund", "eine katze")]), model.embed(["der hund eine katze"]))
    with pytest.raises(SettingsError, match="mean, first or pooled"):
        model.embed(TEXTS, "max")
    with pytest.raises(SettingsError, match="no pooler"):
        reader(tokenizer, "tags").embed(TEXTS, "pooled")


def test_long_texts_are_cut_and_counted(tokenizer: Tokenizer) -> None:
    model = reader(tokenizer, "labels", {"labels": ["a", "b", "c"], "max_length": 9})
    assert model.predict([" ".join(TEXTS)])[0] == model.predict([" ".join(TEXTS) + " der"])[0]
    assert model.truncated == 2


def test_attention_of_a_pair_is_shown_by_layer_and_head(tokenizer: Tokenizer) -> None:
    model = reader(tokenizer, "labels")
    maps = model.attention(["der hund", "am tor"])
    pieces = tokenizer.pieces(tokenizer("der hund", "am tor")["input_ids"])
    assert maps.rows("encoder") == maps.columns("encoder") == tuple(pieces)
    assert maps.maps["encoder"].shape == (1, 2, len(pieces), len(pieces))
    np.testing.assert_allclose(maps.maps["encoder"].sum(-1), 1.0, atol=1e-5)
    assert "der hund | am tor" in maps.to_html()
    assert maps.translation in "abc"


def test_masks_of_a_text_show_their_candidates(tokenizer: Tokenizer) -> None:
    model, text = reader(tokenizer, "language"), "der <mask> bellt am <mask>"
    maps = model.attention(text, top=3)
    assert [maps.source_pieces[step.position] for step in maps.steps] == ["<mask>"] * 2
    filled = [[(one.piece, one.probability) for one in step.top] for step in maps.steps]
    assert filled == [[tuple(one) for one in candidates] for candidates in model.fill(text, top=3)]
    assert model.attention("der hund").steps == ()
    assert "top" in model.inspect_options and "top" not in reader(tokenizer, "labels").inspect_options


def test_what_a_text_encoder_cannot_predict_is_an_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(SettingsError, match="has no head"):
        reader(tokenizer, "none").predict(TEXTS)
    with pytest.raises(SettingsError, match="one text or a pair"):
        reader(tokenizer, "labels").predict([["a", "b", "c"]])
    with pytest.raises(SettingsError, match="question, context"):
        reader(tokenizer, "span").predict(["wo ?"])


def test_an_npy_file_is_written_row_by_row(tmp_path: Path) -> None:
    rows = np.arange(21, dtype=np.float32).reshape(7, 3)
    with VectorFile(tmp_path / "a.npy", 3) as vectors:
        for row in range(0, 7, 2):
            vectors.append(rows[row : row + 2])
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy", allow_pickle=False), rows)
    with pytest.raises(RuntimeError), VectorFile(tmp_path / "b.npy", 3) as vectors:
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]
