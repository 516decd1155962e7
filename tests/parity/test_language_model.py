"""Language models beside `transformers` with the same weights: prompts, and perplexity with a sliding window."""

from __future__ import annotations

import math

import pytest
import torch

from tests.parity.test_huggingface import CASES, END, PAD, draw, ours_of, theirs_of
from transduce.errors import SettingsError
from transduce.inference.scoring import scoring_windows, sliding_scores
from transduce.inference.search.options import Request, SearchOptions
from transduce.inference.torch_engine import TorchEngine
from transduce.text.tokenizer.special import Specials

GPT2 = next(case for case in CASES if case.name == "gpt2")
WINDOW = 64
"""The positions that this GPT-2 has."""
SPECIALS = Specials(PAD, 1, END)


@pytest.mark.parametrize("stride", [1, 7, 32, 64])
def test_a_window_that_slides_scores_every_token_once_as_a_plain_loop_does(stride: int) -> None:
    theirs = theirs_of(GPT2).double()
    ours, _ = ours_of(GPT2, theirs)
    tokens = draw(1, 211, 3)
    expected, scored = [], 1
    for end in range(WINDOW + 1, 211 + stride, stride):  # ends of windows: the first is full, then one stride further
        last = min(end, 211)
        read = tokens[:, max(0, last - WINDOW - 1) : last]
        with torch.no_grad():
            scores = theirs(read[:, :-1]).logits.log_softmax(-1)
        found = scores.gather(2, read[:, 1:, None])[0, :, 0]
        expected += found[len(found) - (last - scored) :].tolist()
        scored = last
    flat = [score for some in sliding_scores(ours, tokens[0].tolist(), WINDOW, stride) for score in some]
    assert len(flat) == len(expected) == 210
    torch.testing.assert_close(torch.tensor(flat), torch.tensor(expected), rtol=0.0, atol=1e-5)


def test_a_short_text_is_one_window_and_equals_the_loss_that_theirs_computes() -> None:
    theirs = theirs_of(GPT2)
    ours, _ = ours_of(GPT2, theirs)
    tokens = draw(1, 40, 4)
    with torch.no_grad():
        loss = float(theirs(tokens, labels=tokens).loss)
    (scores,) = sliding_scores(ours, tokens[0].tolist(), WINDOW, 16)
    assert math.exp(-sum(scores) / len(scores)) == pytest.approx(math.exp(loss), rel=1e-5)


def test_the_smaller_the_stride_the_more_stands_before_each_token() -> None:
    def before(stride: int) -> list[int]:
        windows = scoring_windows(range(300), 50, stride)
        return [len(one.tokens) - 1 - back for one in windows for back in range(one.new)]

    assert all(len(before(stride)) == 299 for stride in (1, 20, 50))
    assert sum(before(1)) > sum(before(20)) > sum(before(50))
    assert min(sorted(before(1))[50:]) == 50
    assert list(scoring_windows([], 5, 5)) == list(scoring_windows([3], 5, 5)) == []
    with pytest.raises(SettingsError, match="choose 1 to 5"):
        next(scoring_windows(range(9), 5, 6))


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_prompt_is_gone_on_with_as_theirs_does_without_any_start_token(name: str) -> None:
    """The first token of the prompt stands where a start token would; of a batch, each at its own length."""
    case = next(case for case in CASES if case.name == name)
    theirs = theirs_of(case)
    ours, _ = ours_of(case, theirs)
    options = SearchOptions(method="greedy", max_length=9, length_penalty=0.0)
    prompts = [draw(1, 1 + seed % 5, 200 + seed) for seed in range(12)]
    requests = [
        Request(number, (), options, prefix=prompt[0, 1:].tolist(), first=int(prompt[0, 0]))
        for number, prompt in enumerate(prompts)
    ]
    answers = TorchEngine(ours, SPECIALS, SPECIALS).translate(requests)
    for prompt, (answer,) in zip(prompts, answers, strict=True):
        wanted = theirs.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=9,
            do_sample=False,
            bad_words_ids=[[PAD], [SPECIALS.start]],
            return_dict_in_generate=True,
            output_logits=True,
        )
        written = wanted.sequences[0, prompt.shape[1] :].tolist()
        assert answer.tokens[prompt.shape[1] - 1 :] == [token for token in written if token not in (PAD, END)]
        steps = torch.stack(wanted.logits)[:, 0].log_softmax(-1)
        expected = float(steps.gather(1, torch.tensor(written)[:, None]).sum())
        assert answer.log_probability == pytest.approx(expected, abs=1e-4)  # of what was written, not of the prompt
