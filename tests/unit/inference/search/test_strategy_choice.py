"""The rules that pick tokens, on scores written by hand.  Token 2 ends."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from transduce.inference.search.strategy import StepScores, beam, greedy

END = 2
NEVER = -torch.inf


def scores(*sentences: list[list[float]]) -> StepScores:
    return ways(torch.tensor(sentences))


def ways(score_SWV: Tensor) -> StepScores:
    """Half of each score is the opening's."""
    opening_SW = score_SWV.amax(dim=-1) / 2
    return StepScores((score_SWV - opening_SW[:, :, None]).nan_to_num(nan=0.0, neginf=NEVER), opening_SW)


def test_greedy_takes_the_best_token_of_each_sentence() -> None:
    choice = greedy(scores([[-3.0, -1.0, -2.0, -5.0, -4.0]], [[-0.5, -1.0, -2.0, -0.25, -9.0]]), END)
    assert choice.tokens.tolist() == [[1], [3]]
    assert choice.scores.tolist() == [[-1.0], [-0.25]]
    assert choice.parents.tolist() == [[0], [0]]
    assert choice.ended.tolist() == [[False], [False]]


def test_greedy_ends_where_the_end_is_best_and_is_then_not_alive() -> None:
    choice = greedy(scores([[-3.0, -1.0, -0.5, -5.0]], [[-3.0, -1.0, -2.0, -5.0]]), END)
    assert choice.ended.tolist() == [[True], [False]]
    assert choice.ended_scores[0, 0] == -0.5
    assert choice.scores.tolist() == [[NEVER], [-1.0]]


def test_beam_keeps_the_best_continuations_over_all_openings() -> None:
    choice = beam(scores([[-5.0, -1.5, -9.0, -2.5], [-1.0, -8.0, -9.5, -7.0], [-6.0, -2.0, -9.9, -7.5]]), END)
    assert choice.parents.tolist() == [[1, 0, 2]]
    assert choice.tokens.tolist() == [[0, 1, 1]]
    assert choice.scores.tolist() == [[-1.0, -1.5, -2.0]]
    assert not choice.ended.any()


def test_an_ending_counts_only_among_the_best_and_takes_no_place_of_those_that_go_on() -> None:
    first = [[-2.0, -6.0, -1.0, -7.0], [-3.0, -8.0, -4.0, -9.0]]  # ends at rank 0 and at rank 3, beyond the width
    second = [[-1.0, -2.0, -3.0, -8.0], [-4.0, -5.0, -3.5, -9.0]]  # both endings are beyond the width
    choice = beam(scores(first, second), END)
    assert choice.ended.tolist() == [[True, False], [False, False]]
    assert (choice.ended_parents[0, 0], choice.ended_scores[0, 0]) == (0, -1.0)
    assert choice.tokens.tolist() == [[0, 0], [0, 1]]
    assert choice.parents.tolist() == [[0, 1], [0, 0]]
    assert choice.scores.tolist() == [[-2.0, -3.0], [-1.0, -2.0]]


def test_even_when_every_opening_ends_best_as_many_go_on_as_the_beam_is_wide() -> None:
    choice = beam(scores([[-5.0, -6.0, -0.1, -7.0], [-8.0, -9.0, -0.2, -10.0], [-11.0, -12.0, -0.3, -13.0]]), END)
    assert choice.ended.tolist() == [[True, True, True]]
    assert choice.ended_parents.tolist() == [[0, 1, 2]]
    assert choice.scores.tolist() == [[-5.0, -6.0, -7.0]]


def test_openings_that_are_not_alive_neither_end_nor_go_on() -> None:
    """The first step: all openings are alike, and only one counts."""
    choice = beam(scores([[-1.0, -2.0, -0.5, NEVER], [NEVER] * 4, [NEVER] * 4]), END)
    assert choice.scores.tolist() == [[-1.0, -2.0, NEVER]]
    assert choice.ended.tolist() == [[True, False, False]]
    assert choice.ended_parents[0, 0] == 0


@pytest.mark.parametrize("seed", range(7))
def test_beam_agrees_with_sorting_all_continuations(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    score_SWV = -10 * torch.rand(5, 3, 11, generator=generator)
    choice = beam(StepScores(score_SWV, torch.zeros(5, 3)), END)
    for sentence, score_WV in enumerate(score_SWV.tolist()):
        ranked = sorted(
            ((score, parent, token) for parent, row in enumerate(score_WV) for token, score in enumerate(row)),
            reverse=True,
        )
        going = [candidate for candidate in ranked if candidate[2] != END][:3]
        ending = [(score, parent) for score, parent, token in ranked[:3] if token == END]
        ended = choice.ended[sentence]
        assert [
            *zip(
                choice.scores[sentence].tolist(),
                choice.parents[sentence].tolist(),
                choice.tokens[sentence].tolist(),
                strict=True,
            )
        ] == going
        assert [
            *zip(
                choice.ended_scores[sentence][ended].tolist(),
                choice.ended_parents[sentence][ended].tolist(),
                strict=True,
            )
        ] == ending


def test_a_beam_of_one_chooses_like_greedy() -> None:
    score_SWV = -10 * torch.rand(101, 1, 7, generator=torch.Generator().manual_seed(3))
    one, best = beam(ways(score_SWV), END), greedy(ways(score_SWV), END)
    assert torch.equal(one.ended, best.ended)
    assert 5 < int(best.ended.sum()) < 50
    assert torch.equal(one.ended_scores[one.ended], best.ended_scores[best.ended])
    assert torch.equal(one.tokens[~one.ended], best.tokens[~best.ended])
    assert torch.equal(one.scores[~one.ended], best.scores[~best.ended])
