from __future__ import annotations

import pytest
import torch

from tests.unit.inspection.example import SIZES, SOURCE_TOKENS, STEPS, TARGET_TOKENS, small_transformer
from transduce.errors import SettingsError
from transduce.inspection import replay
from transduce.inspection.replay import next_tokens


def test_probabilities_are_those_of_decoding_step_by_step() -> None:
    model = small_transformer()
    steps = next_tokens(model, SOURCE_TOKENS, TARGET_TOKENS, top=3)
    assert len(steps) == STEPS
    source_1S = torch.tensor([SOURCE_TOKENS])
    with torch.no_grad():
        state = model.start(model.encode(source_1S, torch.ones_like(source_1S, dtype=torch.bool)))
        for step, read, chosen in zip(steps, TARGET_TOKENS, TARGET_TOKENS[1:], strict=False):
            hidden, state = model.step(torch.tensor([read]), state)
            probability = model.logits(hidden)[0].softmax(dim=-1).tolist()
            order = sorted(range(SIZES.target), key=lambda token: -probability[token])
            assert step.chosen is not None and step.chosen.token == chosen
            assert step.chosen.logit == pytest.approx(float(model.logits(hidden)[0, chosen]), abs=1e-5)
            assert step.chosen.probability == pytest.approx(probability[chosen], abs=1e-6)
            assert step.rank == order.index(chosen) + 1
            assert [candidate.token for candidate in step.top] == order[:3]
            assert [candidate.probability for candidate in step.top] == pytest.approx(
                [probability[token] for token in order[:3]], abs=1e-6
            )


def test_all_of_the_vocabulary_sums_to_one() -> None:
    for step in next_tokens(small_transformer(), SOURCE_TOKENS, TARGET_TOKENS, top=1000):
        assert len(step.top) == SIZES.target
        assert sum(candidate.probability for candidate in step.top) == pytest.approx(1.0, abs=1e-5)


def test_pieces_name_chosen_and_likely_tokens() -> None:
    steps = next_tokens(
        small_transformer(), SOURCE_TOKENS, TARGET_TOKENS, top=2, pieces=lambda tokens: [f"<{t}>" for t in tokens]
    )
    for step in steps:
        for candidate in (step.chosen, *step.top):
            assert candidate is not None
            assert candidate.piece == f"<{candidate.token}>"


def test_fewer_than_one_token_cannot_be_shown() -> None:
    with pytest.raises(SettingsError, match="at least 1"):
        next_tokens(small_transformer(), SOURCE_TOKENS, TARGET_TOKENS, top=0)


def test_many_positions_are_scored_in_parts_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = next_tokens(small_transformer(), SOURCE_TOKENS, TARGET_TOKENS, top=3)
    monkeypatch.setattr(replay, "CHUNK", 2)
    parts = next_tokens(small_transformer(), SOURCE_TOKENS, TARGET_TOKENS, top=3)
    assert [step.position for step in parts] == list(range(STEPS))
    for one, other in zip(whole, parts, strict=True):
        assert one.rank == other.rank and one.entropy == pytest.approx(other.entropy, abs=1e-5)
        assert [candidate.token for candidate in one.top] == [candidate.token for candidate in other.top]


def test_entropy_is_the_mean_surprise_in_bits() -> None:
    even = torch.zeros(1, 8)
    certain = torch.tensor([[200.0, *[0.0] * 7]])
    for logits, bits in ((even, 3.0), (certain, 0.0)):
        (step,) = replay.steps_of_logits(logits, [4], (), 1, lambda tokens: list(map(str, tokens)))
        assert step.entropy == pytest.approx(bits, abs=1e-5) and step.position == 4 and step.chosen is None
