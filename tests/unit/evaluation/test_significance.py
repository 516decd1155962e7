"""Intervals against sacreBLEU's own, p-values against arithmetic and laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sacrebleu
from sacrebleu.significance import PairedTest

from transduce.errors import DataError, SettingsError
from transduce.evaluation.metrics import EXACT_MATCH, METRICS, PHONEME_ERROR_RATE, WORD_ERROR_RATE, select_metrics
from transduce.evaluation.significance import SeedNoise, compare, interval, kendall_tau, tau_interval

WORDS = ["the", "a", "dog", "cat", "man", "bites", "sees", "likes", "old", "small", "house", "and"]


def noisy_copies(noise: float, seed: int, sentences: int = 53) -> tuple[list[str], list[str]]:
    """Return references, and copies of them with some words replaced."""
    same = np.random.default_rng(7)
    other = np.random.default_rng(seed)
    references, copies = [], []
    for _ in range(sentences):
        words = [str(word) for word in same.choice(WORDS, size=same.integers(5, 12))]
        references.append(" ".join(words))
        copies.append(" ".join(str(other.choice(WORDS)) if other.random() < noise else word for word in words))
    return references, copies


REFERENCES, GOOD = noisy_copies(0.1, seed=3)
_, BAD = noisy_copies(0.4, seed=5)
ANSWERS = [[line] for line in REFERENCES]


@pytest.mark.parametrize(("name", "judge"), [("bleu", sacrebleu.BLEU()), ("chrf", sacrebleu.CHRF())])
def test_interval_equals_the_one_of_sacrebleu(
    name: str, judge: sacrebleu.BLEU, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    theirs = judge.corpus_score(GOOD, [REFERENCES], n_bootstrap=200)
    ours = interval(METRICS[name], GOOD, ANSWERS, samples=200)
    assert ours.score == theirs.score
    assert ours.mean == pytest.approx(theirs._mean, abs=1e-5)  # sacreBLEU sums in float32
    assert (ours.high - ours.low) / 2 == pytest.approx(theirs._ci, abs=1e-5)
    assert ours.low < ours.score < ours.high


def test_paired_resampling_scores_both_systems_as_sacrebleu_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    systems = [("bad", BAD), ("good", GOOD)]
    _, theirs = PairedTest(systems, {"BLEU": sacrebleu.BLEU()}, [REFERENCES], test_type="bs", n_samples=200)()
    bad, good = theirs["BLEU"]
    ours = compare(METRICS["bleu"], GOOD, BAD, ANSWERS, samples=200)
    assert (ours.first, ours.second) == (good.score, bad.score)
    assert interval(METRICS["bleu"], GOOD, ANSWERS, samples=200).mean == pytest.approx(good.mean, abs=1e-5)
    assert good.p_value < 0.05 and ours.p_value < 0.05
    assert ours.better == "first"


def test_a_system_does_not_differ_from_itself() -> None:
    for metric in METRICS.values():
        same = compare(metric, GOOD, GOOD, ANSWERS, samples=50)
        assert (same.delta, same.p_value, same.better) == (0, 1, "neither")


def test_lower_is_better_for_error_rates() -> None:
    assert compare(PHONEME_ERROR_RATE, GOOD, BAD, ANSWERS, samples=100).better == "first"
    assert compare(PHONEME_ERROR_RATE, BAD, GOOD, ANSWERS, samples=100).better == "second"
    assert compare(EXACT_MATCH, BAD, GOOD, ANSWERS, samples=100).better == "second"


def test_comparing_the_other_way_round_changes_only_the_sign() -> None:
    one = compare(METRICS["chrf"], GOOD, BAD, ANSWERS, samples=60)
    other = compare(METRICS["chrf"], BAD, GOOD, ANSWERS, samples=60)
    assert one.delta == -other.delta
    assert (one.low, one.high) == (-other.high, -other.low)
    assert one.p_value == other.p_value


def test_interval_of_a_share_is_the_one_of_the_binomial() -> None:
    right, sentences = 211, 509
    hypotheses = ["yes"] * right + ["no"] * (sentences - right)
    found = interval(EXACT_MATCH, hypotheses, [["yes"]] * sentences, samples=4000)
    share = right / sentences
    spread = math.sqrt(share * (1 - share) / sentences)
    assert found.score == share
    assert found.mean == pytest.approx(share, abs=4 * spread / math.sqrt(4000))
    assert found.low == pytest.approx(share - 1.96 * spread, abs=0.15 * spread)
    assert found.high == pytest.approx(share + 1.96 * spread, abs=0.15 * spread)


def test_p_value_of_discordant_pairs_is_near_the_normal_one() -> None:
    """Two systems differ on 31 + 17 of 503 sentences; the paired z-test has p = erfc(z / sqrt 2)."""
    wins, losses, sentences = 31, 17, 503
    first = ["yes"] * wins + ["no"] * losses + ["yes"] * (sentences - wins - losses)
    second = ["no"] * wins + ["yes"] * losses + ["yes"] * (sentences - wins - losses)
    found = compare(WORD_ERROR_RATE, first, second, [["yes"]] * sentences, samples=4000)
    mean = (wins - losses) / sentences
    deviation = math.sqrt(((wins + losses) / sentences - mean**2) / sentences)
    assert found.delta == pytest.approx(-mean)
    assert found.p_value == pytest.approx(math.erfc(mean / deviation / math.sqrt(2)), abs=0.015)


def test_the_same_seed_gives_the_same_numbers() -> None:
    once = interval(METRICS["bleu"], GOOD, ANSWERS, samples=40, seed=11)
    assert once == interval(METRICS["bleu"], GOOD, ANSWERS, samples=40, seed=11)
    assert once != interval(METRICS["bleu"], GOOD, ANSWERS, samples=40, seed=13)
    assert once.to_json()["samples"] == 40


def test_one_sentence_has_an_interval_without_width() -> None:
    one = interval(PHONEME_ERROR_RATE, ["A B"], [["A C"]], samples=5)
    assert (one.low, one.high, one.mean) == (0.5, 0.5, 0.5)


def test_nonsense_is_rejected() -> None:
    with pytest.raises(SettingsError, match="0 bootstrap samples"):
        interval(EXACT_MATCH, ["a"], [["a"]], samples=0)
    with pytest.raises(SettingsError, match="seed = -1"):
        interval(EXACT_MATCH, ["a"], [["a"]], seed=-1)
    with pytest.raises(DataError, match="1 hypotheses but 2"):
        compare(EXACT_MATCH, ["a", "b"], ["a"], [["a"], ["b"]])


def test_metrics_are_chosen_by_name() -> None:
    chosen = select_metrics(["chrf", "word_error_rate"])
    assert list(chosen) == ["chrf", "word_error_rate"]
    assert chosen["word_error_rate"] is WORD_ERROR_RATE
    assert chosen["chrf"].name == METRICS["chrf"].name
    assert "tok:none" in select_metrics(["bleu"], tokenize="none")["bleu"].score(["a b c d"], [["a b c d"]]).signature
    with pytest.raises(SettingsError, match="did you mean 'bleu'"):
        select_metrics(["blue"])


def test_kendalls_tau_by_hand() -> None:
    assert kendall_tau([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert kendall_tau([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert kendall_tau([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(4 / 6)  # five pairs agree, one does not
    # with ties: pairs (1,2) tied in the first, (2,3) in the second; one pair left to agree over √(2 · 2)
    assert kendall_tau([1, 1, 2], [1, 2, 2]) == pytest.approx(0.5)
    assert math.isnan(kendall_tau([1, 1], [1, 2]))
    with pytest.raises(SettingsError, match="2 and 3"):
        kendall_tau([1, 2], [1, 2, 3])


def test_kendalls_tau_equals_scipys() -> None:
    stats = pytest.importorskip("scipy.stats", reason="needs scipy, which no extra installs")
    first, second = np.random.default_rng(1).integers(0, 7, (2, 23))
    assert kendall_tau(first, second) == pytest.approx(stats.kendalltau(first, second).statistic)


def test_the_noise_of_seeds_is_pooled() -> None:
    noise = SeedNoise.of([[1.0, 3.0], [10.0], [5.0, 7.0]])
    assert noise.deviation == pytest.approx(math.sqrt(2)) and noise.freedom == 2
    assert noise.half_width(2, 2) == pytest.approx(4.303 * math.sqrt(2))
    with pytest.raises(SettingsError, match="two seeds"):
        SeedNoise.of([[1.0], [2.0]])


def test_taus_interval_grows_with_the_noise() -> None:
    groups, published = [[1.0, 1.1], [2.0, 2.1], [3.0, 3.1]], [1.0, 2.0, 3.0]
    quiet = tau_interval(groups, published, SeedNoise(0.01, 3), samples=100)
    loud = tau_interval(groups, published, SeedNoise(2.0, 3), samples=100)
    assert quiet.score == quiet.low == quiet.high == loud.score == 1.0
    assert loud.low < 0.5
