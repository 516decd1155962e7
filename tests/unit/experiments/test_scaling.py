"""Division by √d_k: variances and gradients against closed forms."""

from __future__ import annotations

import pytest
import torch

from transduce.experiments.scaling import ScalingSetting, attention_statistics, measure, sample_inputs

SMALL = ScalingSetting(key_dims=(4, 64, 256), sentences=17, length=23)


def test_the_variance_of_a_product_of_k_pairs_is_k() -> None:
    finding = measure(setting=SMALL)
    for key_dim, divided, variance, *_ in finding.rows:
        assert variance == pytest.approx(key_dim if divided == "no" else 1, rel=0.1)
    assert [check.passed for check in finding.checks[:3]] == [True, True, True]


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_gradients_are_those_of_the_softmax_s_jacobian(scale: float) -> None:
    """dL/ds = (diag(w) - w wᵀ) V g and dL/dq = scale · dL/ds K, written out."""
    query, key, value = (part.double() for part in sample_inputs(16, ScalingSetting(sentences=3, length=7), seed=2))
    weight = torch.softmax(scale * query @ key.transpose(-1, -2), dim=-1)
    jacobian = torch.diag_embed(weight) - weight[..., :, None] * weight[..., None, :]
    given = torch.full((16, 1), 16**-0.5, dtype=torch.float64)
    at_scores = (jacobian @ (value @ given)[:, :, None]).squeeze(-1)
    found = attention_statistics(query, key, value, scale)
    assert found.score_gradient == pytest.approx(at_scores.norm(dim=-1).median().item())
    assert found.query_gradient == pytest.approx((scale * at_scores @ key).norm(dim=-1).median().item())
    assert found.entropy == pytest.approx(torch.distributions.Categorical(weight).entropy().mean().item())


def test_where_keys_are_narrow_the_verdict_is_against_the_claim() -> None:
    finding = measure(setting=ScalingSetting(key_dims=(1, 2), paper_dim=2, sentences=17, length=23))
    assert not finding.checks[4].passed
    assert finding.outcome == "holds in part"


def test_a_seed_means_one_result() -> None:
    assert measure(3, setting=SMALL) == measure(3, setting=SMALL) != measure(4, setting=SMALL)
