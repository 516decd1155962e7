"""Alignments: weights written by hand become links, and the weights are those of the model's own attention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.inference.search.toy import SPECIALS, Toy, random_table, search_all
from transduce.errors import SettingsError
from transduce.inference.alignment import cross_attention, cross_attention_all, word_links
from transduce.inference.ensemble import Ensemble
from transduce.inference.search.options import Hypothesis, Request, SearchOptions
from transduce.inference.search.penalty import uncovered
from transduce.inference.search.search import Search
from transduce.inspection.record import attention_of
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.models.rnn import Rnn, RnnConfig
from transduce.models.transformer import Transformer, TransformerConfig
from transduce.nn.hook import HookPoint
from transduce.nn.initialization import initialize
from transduce.text.alignment import pharaoh

SIZES = VocabularySizes(13, 13)
SOURCES, TARGETS = [[4, 5, 6, 7, 8], [9, 10]], [[5, 1, 7], [6, 8, 9, 11, 12]]


def transformer() -> AnyTransducer:
    config = TransformerConfig(model_dim=12, ffn_dim=7, num_heads=3, num_layers=3)
    return _started(Transformer(config, SIZES))


def rnn() -> AnyTransducer:
    config = RnnConfig(embedding_dim=7, hidden_dim=11)
    return _started(Rnn(config, SIZES))


def _started(model: AnyTransducer) -> AnyTransducer:
    initialize(model, 5)
    return model.eval()


def test_a_head_that_was_trained_to_align_is_used_alone() -> None:
    model = transformer()
    model.alignment_heads = ((1, 2),)
    together = cross_attention(model, SOURCES, TARGETS, SPECIALS, SPECIALS)
    for read, written, weights in zip(SOURCES, TARGETS, together, strict=True):
        maps = attention_of(model, [*read, SPECIALS.end], [SPECIALS.start, *written, SPECIALS.end])
        np.testing.assert_allclose(weights, maps.head("cross", 2, 3)[:-1, :-1], atol=1e-6)
    both = cross_attention(Ensemble([model, transformer()]), SOURCES, TARGETS, SPECIALS, SPECIALS)
    alone = cross_attention(transformer(), SOURCES, TARGETS, SPECIALS, SPECIALS)
    for weights, one, other in zip(both, together, alone, strict=True):
        np.testing.assert_allclose(weights, (one + other) / 2, atol=1e-6)


def test_weights_are_of_the_last_two_layers_whatever_else_is_in_the_batch() -> None:
    model = transformer()
    together = cross_attention(model, SOURCES, TARGETS, SPECIALS, SPECIALS)
    for read, written, weights in zip(SOURCES, TARGETS, together, strict=True):
        maps = attention_of(model, [*read, SPECIALS.end], [SPECIALS.start, *written, SPECIALS.end])
        last_two = (maps.mean("cross", 2) + maps.mean("cross", 3)) / 2
        np.testing.assert_allclose(weights, last_two[:-1, :-1], atol=1e-6)


def test_aligning_attaches_no_hooks_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model, hooked = transformer(), []
    direct = cross_attention(model, SOURCES, TARGETS, SPECIALS, SPECIALS)
    register = HookPoint.register_forward_hook
    monkeypatch.setattr(
        HookPoint, "register_forward_hook", lambda point, hook: hooked.append(point) or register(point, hook)
    )
    observed = cross_attention_all(model, SOURCES, TARGETS, SPECIALS, SPECIALS)
    assert hooked and not {*hooked} & {*model.modules()}
    for one, other in zip(direct, observed, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_recurrent_model_with_attention_is_aligned_too() -> None:
    weights = cross_attention(rnn(), SOURCES, TARGETS, SPECIALS, SPECIALS)
    assert [found.shape for found in weights] == [(3, 5), (5, 2)]


def test_an_ensemble_looks_as_its_members_do_on_average() -> None:
    members = [transformer(), rnn()]
    alone = [cross_attention(member, SOURCES, TARGETS, SPECIALS, SPECIALS) for member in members]
    together = cross_attention(Ensemble(members), SOURCES, TARGETS, SPECIALS, SPECIALS)
    for one, other, both in zip(*alone, together, strict=True):
        np.testing.assert_allclose(both, (one + other) / 2, atol=1e-6)


def test_a_model_that_does_not_attend_says_so() -> None:
    with pytest.raises(SettingsError, match="cross-attention"):
        cross_attention(Toy(random_table(1)), [[4]], [[5]], SPECIALS, SPECIALS)


def test_a_target_word_belongs_to_the_source_word_that_its_tokens_looked_at_together() -> None:
    """The second target word has two tokens; each looks most at another source word, and both a good deal at word 0."""
    weight_TS = np.array([[0.1, 0.1, 0.8, 0.0], [0.3, 0.2, 0.4, 0.1], [0.3, 0.2, 0.0, 0.5]], dtype=np.float32)
    links = word_links(weight_TS, source_words=[0, 0, 1, 2], target_words=[0, 1, 1])
    assert links == [(1, 0), (0, 1)]
    assert pharaoh(links) == "0-1 1-0"


def test_tokens_outside_of_words_have_no_part_in_it() -> None:
    weight_TS = np.array([[0.2, 0.7, 0.1], [0.0, 0.0, 1.0]], dtype=np.float32)
    assert word_links(weight_TS, source_words=[0, None, 1], target_words=[0, None]) == [(0, 0)]
    assert word_links(weight_TS, source_words=[None] * 3, target_words=[0, 1]) == []


def test_coverage_is_nought_for_what_was_read_and_falls_with_what_was_not() -> None:
    half = np.array([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25]], dtype=np.float32)
    assert uncovered(half) == pytest.approx(np.log(0.75) + np.log(0.25))
    assert uncovered(np.eye(3, dtype=np.float32)) == 0.0
    assert np.isfinite(uncovered(np.zeros((0, 3), dtype=np.float32)))


def test_coverage_takes_its_penalty_off_every_hypothesis_and_sorts_them_again() -> None:
    model = transformer()

    def found(coverage: float) -> list[Hypothesis]:
        search = Search(model, SPECIALS, SPECIALS)
        options = SearchOptions(
            beam_size=5, n_best=5, max_length=6, stop_rule="beam_finished", coverage_penalty=coverage
        )
        search.admit([Request(0, SOURCES[0], options)])
        return search_all(search)[0]

    plain = found(0.0)
    weights = cross_attention(model, [SOURCES[0]] * 5, [one.tokens for one in plain], SPECIALS, SPECIALS)
    expected = [
        replace(one, score=pytest.approx(one.score + 0.7 * uncovered(looks), abs=1e-4))
        for one, looks in zip(plain, weights, strict=True)
    ]
    order = sorted(expected, key=lambda one: (not one.ended, -one.score.expected))
    assert found(0.7) == order != expected
