"""Invariants of every model, whatever it is made of: both faces agree, and nothing sees what it must not."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from tests.invariants.cases import CASES, EXACT, PAD, READERS, Case, draw_source, draw_target, encode
from transduce.models.catalog import MODELS
from transduce.models.interface import AnyTransducer, LanguageModel, State

LENGTHS = [7, 3, 5, 1]
"""Lengths of the sources that most laws use."""
ROWS = len(LENGTHS)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, **EXACT)


def walk(model: AnyTransducer, target: Tensor, state: State) -> tuple[Tensor, State]:
    """Step through targets from where a state stands.  (R T) -> (R T D)."""
    hidden = []
    for tokens in target.unbind(dim=1):
        vector, state = model.step(tokens, state)
        hidden.append(vector)
    return torch.stack(hidden, dim=1) if hidden else torch.empty(len(target), 0, 0), state


def whole(model: AnyTransducer, target: Tensor, source: Tensor) -> Tensor:
    """The whole-sequence face for comparison.  (B T), (B S) -> (B T D)."""
    return model(target, encode(model, source))


def test_every_model_and_preset_has_a_case() -> None:
    assert {(case.model, case.preset) for case in CASES} == {
        (name, preset) for name, entry in MODELS.items() if name not in READERS for preset in entry.presets
    }


def test_step_equals_forward(case: Case, model: AnyTransducer) -> None:
    source, target = draw_source(case, LENGTHS), draw_target(case, ROWS, 19)
    hidden, _ = walk(model, target, model.start(encode(model, source)))
    close(hidden, whole(model, target, source))
    assert hidden.shape[:2] == (ROWS, 19)


def test_extend_equals_forward(case: Case, model: AnyTransducer) -> None:
    source, target = draw_source(case, LENGTHS), draw_target(case, ROWS, 19)
    state, pieces = model.start(encode(model, source)), []
    for start, end in pairwise([0, 5, 6, 17, 19]):
        hidden, state = model.extend(target[:, start:end], torch.full((ROWS,), end - start), state)
        pieces.append(hidden)
    close(torch.cat(pieces, dim=1), whole(model, target, source))


def test_extending_by_ragged_lengths_equals_forward(case: Case, model: AnyTransducer) -> None:
    """Rows read different numbers of tokens, some none, in several calls, and step on from where each stands."""
    source, target = draw_source(case, LENGTHS), draw_target(case, ROWS, 13)
    expected, state, stand = whole(model, target, source), model.start(encode(model, source)), [0] * ROWS
    for lengths in ([3, 0, 5, 1], [0, 2, 1, 4], [1, 1, 1, 1], [2, 3, 0, 0]):
        tokens = torch.full((ROWS, max(lengths)), PAD)
        for row, length in enumerate(lengths):
            tokens[row, :length] = target[row, stand[row] : stand[row] + length]
        hidden, state = model.extend(tokens, torch.tensor(lengths), state)
        for row, length in enumerate(lengths):
            close(hidden[row, :length], expected[row, stand[row] : stand[row] + length])
            stand[row] += length
    for _ in range(3):
        hidden, state = model.step(target[range(ROWS), stand], state)
        close(hidden, expected[range(ROWS), stand])
        stand = [place + 1 for place in stand]


def test_the_future_does_not_leak(case: Case, model: AnyTransducer) -> None:
    source, target = draw_source(case, LENGTHS), draw_target(case, ROWS, 11)
    before = whole(model, target, source)
    for place in range(1, 11):
        changed = target.clone()
        changed[:, place:] = draw_target(case, ROWS, 11, seed=101 + place)[:, place:]
        changed[:, place] = (target[:, place] + 1) % case.sizes.target
        after = whole(model, changed, source)
        close(after[:, :place], before[:, :place])
        assert not torch.allclose(after[:, place], before[:, place], rtol=0, atol=1e-6)


def test_every_token_of_the_past_and_of_the_source_matters(case: Case, model: AnyTransducer) -> None:
    """The other half of not leaking: a mask that hides too much would pass every other law."""
    source, target = draw_source(case, [5, 5]), draw_target(case, 2, 7)
    last = whole(model, target, source)[:, -1]
    for place in range(7):
        changed = target.clone()
        changed[:, place] = (target[:, place] + 1) % case.sizes.target
        assert bool(((whole(model, changed, source)[:, -1] - last).abs().amax(-1) > 1e-9).all()), f"target {place}"
    for place in range(0 if isinstance(model, LanguageModel) else 5):
        changed = source.clone()
        changed[:, place] = torch.where(source[:, place] == 2, 4, 2)
        assert bool(((whole(model, target, changed)[:, -1] - last).abs().amax(-1) > 1e-9).all()), f"source {place}"


def test_padding_of_the_source_does_not_matter(case: Case, model: AnyTransducer) -> None:
    source, target = draw_source(case, LENGTHS), draw_target(case, ROWS, 11)
    longer = torch.cat([source, torch.full((ROWS, 6), PAD)], dim=1)
    close(whole(model, target, longer), whole(model, target, source))
    stepped, _ = walk(model, target, model.start(encode(model, longer)))
    close(stepped, whole(model, target, source))


def test_padding_of_the_target_does_not_matter(case: Case, model: AnyTransducer) -> None:
    source, target = draw_source(case, LENGTHS), draw_target(case, ROWS, 11)
    longer = torch.cat([target, torch.full((ROWS, 4), PAD)], dim=1)
    close(whole(model, longer, source)[:, :11], whole(model, target, source))


def test_a_batch_equals_its_sentences_alone(case: Case, model: AnyTransducer) -> None:
    source, target = draw_source(case, LENGTHS), draw_target(case, ROWS, 11)
    together = whole(model, target, source)
    for row, length in enumerate(LENGTHS):
        close(together[row : row + 1], whole(model, target[row : row + 1], source[row : row + 1, :length]))


def test_rows_may_stand_at_different_positions(case: Case, model: AnyTransducer) -> None:
    source, target, ahead = draw_source(case, LENGTHS), draw_target(case, ROWS, 17), torch.tensor([0, 9, 2, 5])
    expected = whole(model, target, source)
    _, state = model.extend(target[:, :9], ahead, model.start(encode(model, source)))
    for later in range(8):
        hidden, state = model.step(target[range(ROWS), ahead + later], state)
        close(hidden, expected[range(ROWS), ahead + later])


@pytest.mark.parametrize("rows", [[3, 1, 0, 2], [2, 0], [1, 2, 3], [0], [2, 2, 1, 1], [1, 1, 1]], ids=str)
def test_select_reorders_drops_and_repeats_sentences(case: Case, model: AnyTransducer, rows: list[int]) -> None:
    source, target, ahead = draw_source(case, LENGTHS), draw_target(case, ROWS, 11), torch.tensor([4, 1, 3, 2])
    expected, chosen = whole(model, target, source), torch.tensor(rows)
    _, state = model.extend(target[:, :4], ahead, model.start(encode(model, source)))
    state = state.select(chosen)
    assert state.num_rows == len(rows)
    for later in range(5):
        hidden, state = model.step(target[chosen, ahead[chosen] + later], state)
        close(hidden, expected[chosen, ahead[chosen] + later])


def test_select_can_drop_at_any_step_until_nobody_is_left(case: Case, model: AnyTransducer) -> None:
    source, target = draw_source(case, LENGTHS), draw_target(case, ROWS, 11)
    expected, state, alive = whole(model, target, source), model.start(encode(model, source)), [0, 1, 2, 3]
    for place, gone in enumerate([2, None, 0, 3]):
        hidden, state = model.step(target[alive, place], state)
        close(hidden, expected[alive, place])
        state = state.select(torch.tensor([row for row, sentence in enumerate(alive) if sentence != gone]))
        alive = [sentence for sentence in alive if sentence != gone]
    assert state.select(torch.tensor([], dtype=torch.long)).num_rows == 0


@pytest.mark.parametrize("ages", [(0, 5), (5, 0), (3, 3), (2, 17)], ids=str)
@pytest.mark.parametrize("width", [1, 3])
def test_states_of_different_ages_can_be_joined(
    case: Case, model: AnyTransducer, ages: tuple[int, int], width: int
) -> None:
    """The second source is longer, so that what was read of the first must be padded."""
    states, targets, expected = [], [], []
    for age, lengths, seed in zip(ages, [[3, 2], [7, 4, 5]], [41, 43], strict=True):
        source = draw_source(case, lengths, seed)
        target = draw_target(case, len(lengths) * width, 23, seed)
        expected.append(whole(model, target, source.repeat_interleave(width, dim=0)))
        _, state = walk(model, target[:, :age], model.start(encode(model, source), width))
        states.append(state)
        targets.append(target)
    ahead = torch.tensor([ages[0]] * (2 * width) + [ages[1]] * (3 * width))
    target, truth, state = torch.cat(targets), torch.cat(expected), states[0].join(states[1])
    assert (state.num_rows, state.width) == (5 * width, width)
    for later in range(4):
        hidden, state = model.step(target[range(5 * width), ahead + later], state)
        close(hidden, truth[range(5 * width), ahead + later])


def test_after_everybody_left_others_can_come(case: Case, model: AnyTransducer) -> None:
    source, target = draw_source(case, LENGTHS), draw_target(case, ROWS, 5)
    _, left = walk(model, target[:2], model.start(encode(model, draw_source(case, [9, 2], seed=3))))
    state = left.select(torch.tensor([], dtype=torch.long)).join(model.start(encode(model, source)))
    hidden, _ = walk(model, target, state)
    close(hidden, whole(model, target, source))


def test_rows_of_one_sentence_equal_the_sentence_repeated(case: Case, model: AnyTransducer) -> None:
    source, target = draw_source(case, LENGTHS), draw_target(case, ROWS * 3, 7)
    state = model.start(encode(model, source), width=3)
    assert (state.num_rows, state.width) == (ROWS * 3, 3)
    hidden, _ = walk(model, target, state)
    close(hidden, whole(model, target, source.repeat_interleave(3, dim=0)))


def test_extending_rows_of_one_sentence_equals_the_sentence_repeated(case: Case, model: AnyTransducer) -> None:
    source, target = draw_source(case, LENGTHS), draw_target(case, ROWS * 3, 7)
    hidden, _ = model.extend(target, torch.full((ROWS * 3,), 7), model.start(encode(model, source), width=3))
    close(hidden, whole(model, target, source.repeat_interleave(3, dim=0)))


def test_select_does_what_beam_search_asks(case: Case, model: AnyTransducer) -> None:
    """Sentence 1 is finished and leaves; the rows of the others repeat and change places among themselves."""
    source, target = draw_source(case, LENGTHS[:3]), draw_target(case, 9, 4)
    _, state = walk(model, target, model.start(encode(model, source), width=3))
    rows = torch.tensor([1, 1, 0, 8, 6, 8])
    longer = torch.cat([target[rows], draw_target(case, 6, 6, seed=77)[:, 1:]], dim=1)
    hidden, _ = walk(model, longer[:, 4:], state.select(rows))
    close(hidden, whole(model, longer, source[[0, 2]].repeat_interleave(3, dim=0))[:, 4:])


def test_beams_may_die_out_at_any_step(case: Case, model: AnyTransducer) -> None:
    """Rows go on from each other after every token, and a sentence leaves: what each has read stays what it was."""
    width, length, generator = 3, 29, torch.Generator().manual_seed(7)
    source, kept = draw_source(case, LENGTHS), torch.arange(ROWS)
    state, read = model.start(encode(model, source), width), torch.empty(ROWS * width, 0, dtype=torch.long)
    for place in range(length):
        tokens = draw_target(case, len(kept) * width, 2, seed=place)[:, min(place, 1)]
        hidden, state = model.step(tokens, state)
        read = torch.cat([read, tokens[:, None]], dim=1)
        close(hidden, whole(model, read, source[kept].repeat_interleave(width, dim=0))[:, -1])
        stay = torch.tensor([0, 1, 3]) if place == 19 else torch.arange(len(kept))
        rows = (stay[:, None] * width + torch.randint(0, width, (len(stay), width), generator=generator)).flatten()
        state, read, kept = state.select(rows), read[rows], kept[stay]


def test_a_shortlist_gives_the_scores_of_the_whole_vocabulary(case: Case, model: AnyTransducer) -> None:
    hidden = whole(model, draw_target(case, 2, 3), draw_source(case, [5, 2]))
    scores, shortlist = model.logits(hidden), torch.tensor([17, 2, 11])
    assert scores.shape == (2, 3, case.sizes.target)
    close(model.logits(hidden, shortlist), scores[..., shortlist])


def test_a_state_is_not_kept_on_the_module(case: Case, model: AnyTransducer) -> None:
    """Two searches with one model, step by step in turn, do not notice each other."""
    sources = [draw_source(case, LENGTHS, seed) for seed in (5, 6)]
    target = draw_target(case, ROWS, 7)
    states = [model.start(encode(model, source)) for source in sources]
    for place in range(7):
        for index, source in enumerate(sources):
            hidden, states[index] = model.step(target[:, place], states[index])
            close(hidden, whole(model, target, source)[:, place])
