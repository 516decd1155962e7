"""BERT beside `transformers`' own, with the same random weights: scores, gradients, padding on either side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from transduce.errors import ModelFolderError
from transduce.interop.huggingface.architecture import InMemoryWeights, Settings, export_mapped, load_mapped
from transduce.interop.huggingface.bert import BERT
from transduce.model_folder import weights_of
from transduce.models.bert import Bert, bert_base, bert_large
from transduce.models.catalog import build
from transduce.models.head import LanguageHead
from transduce.models.interface import Encoding, VocabularySizes

transformers = pytest.importorskip("transformers", reason="compares with transformers; install the extra dev")

LENGTHS = [7, 3, 11, 1]
CLASSES = {
    "none": "BertModel",
    "language": "BertForPreTraining",
    "masked": "BertForMaskedLM",
    "labels": "BertForSequenceClassification",
    "tags": "BertForTokenClassification",
    "span": "BertForQuestionAnswering",
}


@dataclass
class Twins:
    """Their model and ours with the same weights."""

    theirs: Any
    ours: Bert
    pieces: int


def twins(kind: str, dtype: torch.dtype, sizes: tuple[int, int, int, int]) -> Twins:
    """Models of (heads, width of a head, inner width, layers), no dropout."""
    heads, width, inner, layers = sizes
    pieces, labels, segments = 47, 5, 3
    torch.manual_seed(7)
    setup = transformers.BertConfig(
        vocab_size=pieces,
        hidden_size=heads * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        max_position_embeddings=13,
        type_vocab_size=segments,
        num_labels=labels if kind in ("labels", "tags") else 2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,
        attn_implementation="eager",
    )
    theirs = getattr(transformers, CLASSES[kind])(setup).to(dtype).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    found = InMemoryWeights(theirs.state_dict())
    config = BERT.read(Settings({**setup.to_dict(), "architectures": [CLASSES[kind]]}, "config.json"), found)
    ours = build(config, VocabularySizes(pieces, pieces)).to(dtype)
    assert isinstance(ours, Bert)
    weights = load_mapped(BERT.weight_map(config), found, BERT.ignored, "weights")
    mine = weights_of(ours)
    assert weights.keys() == mine.keys()
    with torch.no_grad():
        for name, weight in weights.items():
            mine[name].copy_(weight)
    return Twins(theirs, ours.eval(), pieces)


def batch(pieces: int, left: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, which are real, segments; padded on the left or on the right."""
    generator = torch.Generator().manual_seed(3)
    longest = max(LENGTHS)
    tokens = torch.randint(1, pieces, (len(LENGTHS), longest), generator=generator)  # 0 is their padding: no gradient
    segments = torch.randint(0, 3, (len(LENGTHS), longest), generator=generator)
    place, length = torch.arange(longest), torch.tensor(LENGTHS)[:, None]
    return tokens, place >= longest - length if left else place < length, segments


def their_scores(kind: str, found: Any) -> list[Tensor]:
    if kind == "none":
        return [found.last_hidden_state, found.pooler_output]
    if kind == "language":
        return [found.prediction_logits, found.seq_relationship_logits]
    return [found.start_logits, found.end_logits] if kind == "span" else [found.logits]


def our_scores(kind: str, model: Bert, reading: Encoding) -> list[Tensor]:
    if model.head is None:
        assert reading.pooled is not None
        return [reading.states, reading.pooled]
    scores = [model.head(reading)]
    if kind == "language":
        assert isinstance(model.head, LanguageHead)
        scores.append(model.head.next_sentence_scores(reading))
    return list(scores[0].unbind(dim=-1)) if kind == "span" else scores


def real(scores: Tensor, allowed: Tensor) -> Tensor:
    """What was said of padding means nothing."""
    return scores[allowed] if scores.shape[:2] == allowed.shape else scores


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("sizes", [(2, 7, 29, 3), (5, 3, 19, 2)], ids=str)
@pytest.mark.parametrize("kind", CLASSES)
def test_scores_and_gradients_are_those_of_transformers(
    kind: str, sizes: tuple[int, int, int, int], left: bool
) -> None:
    for dtype, near in ((torch.float32, 2e-5), (torch.float64, 1e-6)):
        pair = twins(kind, dtype, sizes)
        tokens, allowed, segments = batch(pair.pieces, left)
        theirs = their_scores(kind, pair.theirs(tokens, attention_mask=allowed.long(), token_type_ids=segments))
        ours = our_scores(kind, pair.ours, pair.ours(tokens, allowed, segments))
        for expected, found in zip(theirs, ours, strict=True):
            assert (real(found, allowed) - real(expected, allowed)).abs().max() < near * max(1.0, expected.abs().max())
    generator = torch.Generator().manual_seed(5)
    weights = [torch.randn(real(score, allowed).shape, generator=generator, dtype=dtype) for score in ours]
    for scores in (theirs, ours):
        sum((real(score, allowed) * w).sum() for score, w in zip(scores, weights, strict=True)).backward()  # type: ignore[union-attr]
    gradients = {n: p.grad for n, p in pair.ours.named_parameters()}
    for name, parameter in pair.theirs.named_parameters():
        expected = parameter.grad
        mine = export_mapped(BERT.weight_map(pair.ours.config), gradients)  # type: ignore[arg-type]
        found = mine[name if name in mine else f"bert.{name}"]
        assert (found - expected).norm() <= 1e-4 * expected.norm() + 1e-12, name


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"problem_type": "regression"}, "problem_type = 'regression'"),
        ({"problem_type": "multi_label_classification"}, "problem_type = 'multi_label_classification' is not"),
        ({"id2label": {"0": "LABEL_0"}}, "regression"),
    ],
)
def test_what_is_not_one_label_of_several_is_rejected(settings: dict[str, Any], says: str) -> None:
    setup = transformers.BertConfig(num_labels=3).to_dict() | {"architectures": [CLASSES["labels"]]}
    assert BERT.read(Settings(setup, "config.json"), InMemoryWeights({})).num_labels == 3
    with pytest.raises(ModelFolderError, match=says):
        BERT.read(Settings({**setup, **settings}, "config.json"), InMemoryWeights({}))


def test_every_layer_is_to_be_had_and_equals_theirs() -> None:
    pair = twins("none", torch.float64, (2, 7, 29, 3))
    tokens, allowed, segments = batch(pair.pieces, left=False)
    expected = pair.theirs(
        tokens, attention_mask=allowed.long(), token_type_ids=segments, output_hidden_states=True
    ).hidden_states
    found = pair.ours(tokens, allowed, segments, layers=True).layers
    assert len(found) == len(expected) == 4
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine[allowed], theirs[allowed], rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", CLASSES)
def test_names_go_there_and_back(kind: str) -> None:
    pair = twins(kind, torch.float32, (2, 7, 29, 3))
    weight_map = BERT.weight_map(pair.ours.config)
    there = export_mapped(weight_map, weights_of(pair.ours))
    back = load_mapped(weight_map, InMemoryWeights(there), BERT.ignored, "weights")
    for name, weight in weights_of(pair.ours).items():
        assert torch.equal(back[name], weight)
    own = {n if n.startswith(("bert.", "cls.", "class", "qa_")) else f"bert.{n}" for n in pair.theirs.state_dict()}
    tied = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "bert.embeddings.position_ids"}
    assert there.keys() == own - tied


def test_the_presets_have_as_many_parameters_as_the_published_models() -> None:
    """109,482,240 is bert-base-uncased, 335,141,888 bert-large-uncased, both with the pooler and no head."""
    for config, expected in ((bert_base(), 109_482_240), (bert_large(), 335_141_888)):
        with torch.device("meta"):
            model = build(config, VocabularySizes(30_522, 30_522))
        assert sum(parameter.numel() for parameter in model.parameters()) == expected
