"""Batches that `transformers` pads on the left, as it does to go on with prompts, beside what is read here."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.parity.test_huggingface import CASES, END, Case, draw, ours_of, theirs_of
from transduce.inference.search.options import Request, SearchOptions
from transduce.inference.torch_engine import TorchEngine
from transduce.models.interface import LanguageModel
from transduce.text.tokenizer.special import Specials

LENGTHS = [7, 4, 1]
WIDEST = max(LENGTHS)
NAMES = {case.name: case for case in CASES}
CONTINUING, WRITING = ("gpt2", "gpt2-wide", "llama", "llama-tied"), ("marian", "pegasus", "m2m100", "t5", "t5-gated")


def batches(pad: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same rows padded on the left and on the right, each with what is real."""
    rows = [draw(1, length, 40 + length)[0] for length in LENGTHS]
    left, right = (torch.full((len(rows), WIDEST), pad) for _ in range(2))
    for number, row in enumerate(rows):
        left[number, WIDEST - len(row) :], right[number, : len(row)] = row, row
    place, length = torch.arange(WIDEST), torch.tensor(LENGTHS)[:, None]
    return left, place >= WIDEST - length, right, place < length


@pytest.mark.parametrize("name", CONTINUING)
def test_prompts_padded_on_the_left_are_read_as_ours_are_each_at_its_own_length(name: str) -> None:
    theirs = theirs_of(NAMES[name])
    ours, _ = ours_of(NAMES[name], theirs)
    left, real, right, _ = batches(theirs.config.pad_token_id)
    places = (real.cumsum(dim=1) - 1).clamp(min=0)  # as `generate` counts them
    empty = torch.empty(len(LENGTHS), 0, dtype=torch.long)
    with torch.no_grad():
        expected = theirs(left, attention_mask=real.long(), position_ids=places).logits
        state = ours.start(ours.encode(empty, empty.bool()))
        hidden, state = ours.extend(right, torch.tensor(LENGTHS), state)
        found = ours.logits(hidden)
        for row, length in enumerate(LENGTHS):
            torch.testing.assert_close(found[row, :length], expected[row, -length:], rtol=0.0, atol=2e-5)
        more = draw(len(LENGTHS), 1, 99)
        longer, also = torch.cat([left, more], dim=1), torch.cat([real, torch.ones_like(more).bool()], dim=1)
        places = torch.cat([places, places[:, -1:] + 1], dim=1)
        expected = theirs(longer, attention_mask=also.long(), position_ids=places).logits[:, -1]
        hidden, _ = ours.step(more[:, 0], state)
        torch.testing.assert_close(ours.logits(hidden), expected, rtol=0.0, atol=2e-5)


@pytest.mark.parametrize("name", CONTINUING)
def test_a_batch_of_prompts_is_gone_on_with_as_theirs_padded_on_the_left(name: str) -> None:
    theirs = theirs_of(NAMES[name])
    ours, _ = ours_of(NAMES[name], theirs)
    assert isinstance(ours, LanguageModel)
    pad = theirs.config.pad_token_id
    left, real, _, _ = batches(pad)
    written = theirs.generate(
        left, attention_mask=real.long(), max_new_tokens=9, do_sample=False, bad_words_ids=[[pad], [1]]
    )[:, WIDEST:].tolist()
    options, specials = SearchOptions(method="greedy", max_length=9, length_penalty=0.0), Specials(pad, 1, END)
    prompts = [left[row, WIDEST - length :].tolist() for row, length in enumerate(LENGTHS)]
    requests = [
        Request(number, (), options, prefix=prompt[1:], first=prompt[0]) for number, prompt in enumerate(prompts)
    ]
    answers = TorchEngine(ours, specials, specials).translate(requests)
    for prompt, (answer,), wanted in zip(prompts, answers, written, strict=True):
        assert answer.tokens[len(prompt) - 1 :] == [token for token in wanted if token not in (pad, END)]


def scores(case: Case, fill: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of targets whose sources are padded on the left: theirs, ours, and ours padded on the right instead."""
    theirs = theirs_of(case)
    ours, _ = ours_of(case, theirs)
    left, real, right, real_right = batches(theirs.config.pad_token_id)
    target = draw(len(LENGTHS), 5, 2)
    with torch.no_grad():
        expected = theirs(input_ids=left, attention_mask=real.long(), decoder_input_ids=target).logits
        given = left if fill is None else left.masked_fill(~real, fill)
        found = [ours.logits(ours(target, ours.encode(*source))) for source in ((given, real), (right, real_right))]
    return expected, found[0], found[1]


@pytest.mark.parametrize("name", [name for name in WRITING if name != "m2m100"])
def test_sources_padded_on_the_left_are_read_as_theirs(name: str) -> None:
    """Places count from the first column, be it padding, in theirs too; what stands in the padding does not matter."""
    for fill in (None, 7):
        expected, found, _ = scores(NAMES[name], fill)
        torch.testing.assert_close(found, expected, rtol=0.0, atol=2e-5)


def test_an_m2m100_counts_places_by_real_tokens_so_that_its_side_of_padding_is_nothing() -> None:
    """Ours counts columns and is padded on the right by all that feeds it: there both say the same."""
    expected, left, right = scores(NAMES["m2m100"])
    torch.testing.assert_close(right, expected, rtol=0.0, atol=2e-5)
    assert (left[1:] - expected[1:]).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["t5", "t5-gated"])
def test_a_t5_depends_on_distances_only_so_that_the_side_of_padding_is_irrelevant(name: str) -> None:
    _, left, right = scores(NAMES[name])
    torch.testing.assert_close(left, right, rtol=0.0, atol=2e-5)
