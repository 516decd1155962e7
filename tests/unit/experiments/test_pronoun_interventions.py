"""Causal tests on an untrained model: what is cut cannot matter, what is ablated is equal in all sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as but

import pytest
import torch

from transduce.experiments.pronoun_corpus import Scene, draw_scenes, other_ending
from transduce.experiments.pronoun_interventions import (
    Cuts,
    ablated,
    describe,
    find_heads,
    hiding,
    measure_cuts,
    measure_patches,
)
from transduce.experiments.pronoun_probe import Probe, head_attention
from transduce.experiments.pronoun_training import transformer
from transduce.experiments.pronoun_words import NOUNS
from transduce.inspection.component import HeadName, all_heads, attention_path
from transduce.models import catalog
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.nn.hook import record
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizers

SCENES = draw_scenes("test", 40, "de", lambda scene: scene.is_held_out and scene.landmark is None)


@pytest.fixture(scope="module")
def tokenizers() -> tuple[AnyTokenizer, AnyTokenizer]:
    config = TokenizerConfig(kind="bpe", joint=False, min_frequency=1, vocab_size=4000)
    scenes = draw_scenes("words", 1500, "de", lambda _: True)
    return train_tokenizers(config, lambda: ((scene.source(), scene.target("de")) for scene in scenes))


@pytest.fixture(scope="module")
def model(tokenizers: tuple[AnyTokenizer, AnyTokenizer]) -> Iterator[AnyTransducer]:
    config = catalog.read_model_table({**transformer(16), "num_heads": 2}, "the test")
    built = catalog.build(config, VocabularySizes(tokenizers[0].size, tokenizers[1].size), seed=1)
    for weight in built.parameters():  # larger, so that predictions differ
        weight.data *= 2
    yield built.eval()  # type: ignore[misc]


@pytest.fixture(scope="module")
def probe(tokenizers: tuple[AnyTokenizer, AnyTokenizer]) -> Probe:
    return Probe.of(SCENES, "de", *tokenizers)


def test_a_probe_knows_where_the_words_are(probe: Probe, tokenizers: tuple[AnyTokenizer, AnyTokenizer]) -> None:
    source, target = tokenizers
    for row, scene in enumerate(SCENES):
        pieces = [piece.strip("▁").lower() for piece in source.pieces(probe.source[row].tolist())]
        expected = {"it": "it", "adjective": scene.adjective.en, "animal": scene.animal.en, "place": scene.place.en}
        assert {name: pieces[probe.words[name][row]] for name in expected} == expected
        assert target.pieces([int(probe.pronoun[row])]) == [f"▁{scene.pronoun('de')}"]
        read = target.pieces(probe.target[row, : probe.step[row] + 1].tolist())
        assert read[-1].strip("▁").lower() == "weil"
        clause = [piece for piece, inside in zip(pieces, probe.source_clause[row].tolist(), strict=True) if inside]
        assert clause[:5] == ["because", "it", "was", "too", scene.adjective.en]
        assert set(clause[5:]) <= {".", "</s>"}


def test_with_both_cuts_the_nouns_cannot_matter(
    model: AnyTransducer, tokenizers: tuple[AnyTokenizer, AnyTokenizer]
) -> None:
    def changed(scene: Scene) -> Scene:
        return but(scene, animal=NOUNS["animal"][3], place=NOUNS["place"][4], referent="animal")

    chosen = [scene for scene in SCENES if scene.order != "passive"]  # "vom" and "von der" would move the pronoun
    probe, both = (Probe.of(scenes, "de", *tokenizers) for scenes in (chosen, [changed(scene) for scene in chosen]))
    assert not torch.allclose(probe.log_probabilities(model), both.log_probabilities(model), atol=1e-4)
    apart = []
    for one in (probe, both):
        with hiding(model, one, encoder=True, cross=True, own_words=True):
            apart.append(one.log_probabilities(model))
    torch.testing.assert_close(*apart)


def test_a_cut_hides_and_leaves_rows_of_sum_one(model: AnyTransducer, probe: Probe) -> None:
    with hiding(model, probe, encoder=True), record(model, inside="encoder.") as recorded:
        probe.encode(model)
    apart_BSS = probe.source_clause[:, :, None] != probe.source_clause[:, None, :]
    for weight_BHSS in recorded.values():
        assert float(weight_BHSS.amax(dim=1)[apart_BSS].max()) == 0.0
        torch.testing.assert_close(weight_BHSS.sum(dim=-1), torch.ones_like(weight_BHSS[..., 0]))


def test_ablated_heads_say_the_same_in_every_sentence(model: AnyTransducer, probe: Probe) -> None:
    heads = [HeadName("encoder", 2, 2), HeadName("cross", 1, 1)]
    with record(model, ("head",)) as before:
        probe.predict(model)
    with ablated(model, probe, heads), record(model, ("head",)) as after:
        probe.predict(model)
    rows = torch.arange(len(SCENES))
    for head, at in ((heads[0], probe.words["it"]), (heads[1], probe.step)):
        path = f"{attention_path(model, head.kind, head.layer)}.head"
        output_BV = after[path][rows, head.head - 1, at]
        torch.testing.assert_close(output_BV, output_BV[:1].expand_as(output_BV))
        if head.kind == "encoder":  # nothing before it was ablated
            mean_V = before[path][rows, head.head - 1, at].mean(dim=0)
            torch.testing.assert_close(output_BV[0], mean_V)
            others = [other for other in range(2) if other != head.head - 1]
            torch.testing.assert_close(after[path][:, others], before[path][:, others])


def test_the_first_head_found_costs_most(model: AnyTransducer, probe: Probe) -> None:
    heads = [head for head in all_heads(model) if head.kind == "cross"]
    [first] = find_heads(model, probe, probe, ("cross",), most=1)
    left = []
    for head in heads:
        with ablated(model, probe, [head]):
            left.append(probe.accuracy(model))
    assert len(heads) == 2 and first.accuracy == min(left)


def test_patches_flip_the_pronoun_where_it_is_decided(
    model: AnyTransducer, probe: Probe, tokenizers: tuple[AnyTokenizer, AnyTokenizer]
) -> None:
    other = Probe.of([other_ending(scene) for scene in SCENES], "de", *tokenizers)
    assert torch.equal(probe.step, other.step) and torch.equal(probe.allowed, other.allowed)
    with hiding(model, probe, encoder=True):  # then only the clause differs between the two endings
        patches = measure_patches(model, probe, other)
        stays = float((probe.predict(model) == other.pronoun).float().mean())
    assert set(patches) == {"it", "adjective", "nouns", "clause", "rest"}
    assert patches["nouns"] == stays
    assert all(0.0 <= share <= 1.0 for share in patches.values())


@pytest.mark.parametrize(
    ("without_encoder", "without_cross", "solution"),
    [(0.5, 0.9, "encoder"), (0.9, 0.5, "cross-attention"), (0.9, 0.9, "both"), (0.5, 0.5, "neither")],
)
def test_what_suffices_names_the_solution(without_encoder: float, without_cross: float, solution: str) -> None:
    assert Cuts(1.0, without_encoder, without_cross, 1.0).solution == solution


def test_cuts_are_measured_and_leave_no_hooks(model: AnyTransducer, probe: Probe) -> None:
    cuts = measure_cuts(model, probe)
    assert cuts.whole == probe.accuracy(model)
    assert all(0.0 <= share <= 1.0 for share in cuts)


def test_attention_is_measured_from_it_by_ending(model: AnyTransducer, probe: Probe) -> None:
    found = head_attention(model, probe)
    assert len(found) == 3 * 2 + 2
    with record(model) as recorded:
        probe.predict(model)
    about = probe.is_about("animal")
    rows = torch.arange(len(SCENES))[about]
    weights = recorded["encoder.1.self_attention.weight"][
        rows, 1, probe.words["it"][about], probe.words["animal"][about]
    ]
    [head] = [one for one in found if one.head == HeadName("encoder", 2, 2)]
    assert head.to_right_noun("animal") == pytest.approx(float(weights.mean()))


def test_sets_of_heads_are_named_by_layer_and_head() -> None:
    heads = [HeadName("encoder", 2, 1), HeadName("cross", 1, 4), HeadName("encoder", 3, 3)]
    assert describe(heads) == "encoder self-attention 2.1, 3.3; cross-attention 1.4"
