"""Norms of padded batches against means and variances written out."""

from __future__ import annotations

import pytest
import torch

from transduce.experiments.norms import NORMS, Norm, NormSetting, PaddedBatchSampler, change, measure

SMALL = NormSetting(dim=7, words=31, length=5, sentences=(2, 3, 11), paddings=(0, 13), trials=3, warm_up=3)


def drawn() -> tuple[torch.Tensor, torch.Tensor]:
    sampler = PaddedBatchSampler(SMALL, seed=3)
    return sampler.states(sampler.neighbours([5, 2, 3]), padding=2)


@pytest.mark.parametrize("name", NORMS)
def test_norms_are_over_the_documented_axes(name: str) -> None:
    """Compare the first sentence's second token with the statistics written out."""
    kind, real_only = NORMS[name]
    hidden, real = drawn()
    over = {
        "layer": hidden[0, 1],
        "rms": hidden[0, 1],
        "batch": hidden[real] if real_only else hidden.flatten(0, 1),
        "instance": hidden[0, :5] if real_only else hidden[0],
    }[kind]
    deviation, centre = over.std(dim=0, correction=0), over.mean(dim=0)
    if kind == "rms":
        deviation, centre = over.square().mean().sqrt(), torch.zeros(())
    found = Norm(kind, 7, real_only)(hidden, real)[0, 1]
    torch.testing.assert_close(found, (hidden[0, 1] - centre) / deviation, atol=1e-4, rtol=1e-4)


def test_states_have_words_and_padding() -> None:
    hidden, real = drawn()
    assert hidden.shape == (3, 7, 7) and real.sum(dim=1).tolist() == [5, 2, 3]


def test_a_change_is_relative() -> None:
    assert change(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 3.0])) == pytest.approx(0.2)


def test_a_sentence_changes_only_with_the_inputs_of_its_norm() -> None:
    rows = {row[0]: [value > 1e-6 for value in row[1:]] for row in measure(setting=SMALL).rows}  # type: ignore[operator]
    assert rows == {  # neighbours and padding in training, in evaluation; evaluation itself; a later word
        "LayerNorm": [False] * 6,
        "RMSNorm": [False] * 6,
        "BatchNorm": [True, True, False, False, True, True],
        "BatchNorm, padding excluded": [True, False, False, False, True, True],
        "InstanceNorm": [False, True, False, True, False, True],
        "InstanceNorm, padding excluded": [False, False, False, False, False, True],
    }


def test_the_verdict_counts_a_mended_instance_norm_against_the_claim() -> None:
    finding = measure(setting=SMALL)
    assert finding.outcome == "holds in part"
    assert [check.passed for check in finding.checks] == [True, True, True, True, True, True, False, True]
