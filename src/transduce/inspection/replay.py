"""Replay of a finished translation: the next-token distribution at each step. A live search is never affected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.errors import DataError, SettingsError, TransduceError
from transduce.models.interface import AnyTransducer
from transduce.nn.hook import eval_mode


def replay(model: AnyTransducer, source_tokens: Sequence[int], target_tokens: Sequence[int]) -> Tensor:
    """Run one translation by teacher forcing in evaluation mode; vector t predicts token t + 1.  -> (T D)."""
    if not source_tokens:
        raise DataError("the source has no tokens, not even an end token; give a text")
    if len(target_tokens) < 2:
        raise DataError("the target has no token after the start token; give a text")
    device = next(model.parameters()).device
    source_1S = torch.tensor([list(source_tokens)], device=device)
    target_1T = torch.tensor([list(target_tokens[:-1])], device=device)
    with eval_mode(model), torch.no_grad():
        memory = model.encode(source_1S, torch.ones_like(source_1S, dtype=torch.bool))
        hidden: Tensor = model(target_1T, memory)[0]
    return hidden


@dataclass(frozen=True)
class Candidate:
    """A token that could come next."""

    token: int
    piece: str
    probability: float


@dataclass(frozen=True)
class DecodingStep:
    """One step: the chosen token, and the most likely ones."""

    chosen: Candidate
    rank: int
    """1 + how many tokens were more likely than the chosen one; a beam need not take the likeliest."""
    top: tuple[Candidate, ...]
    """The likeliest tokens, best first."""


def next_tokens(
    model: AnyTransducer,
    source_tokens: Sequence[int],
    target_tokens: Sequence[int],
    top: int = 5,
    pieces: Callable[[Sequence[int]], Sequence[str]] | None = None,
) -> list[DecodingStep]:
    """Return a step for each token of a target after its start token; arguments as for `attention_of`.

    `pieces` names tokens of the target side; without it they are named by their numbers.
    """
    if top < 1:
        raise SettingsError(f"the {top} likeliest tokens cannot be shown; request at least 1")
    hidden_TD = replay(model, source_tokens, target_tokens)
    with torch.no_grad():
        probability_TV = model.logits(hidden_TD).float().softmax(dim=-1).cpu()
    if not bool(probability_TV.isfinite().all()):
        raise TransduceError("the next-token scores are not numbers; the model is damaged or its training diverged")
    chosen_T1 = torch.tensor(target_tokens[1:])[:, None]
    chosen_probability_T1 = probability_TV.gather(1, chosen_T1)
    rank_T = (probability_TV > chosen_probability_T1).sum(dim=1) + 1
    best_TC, token_TC = probability_TV.topk(min(top, probability_TV.shape[1]), dim=1)

    def candidates(tokens: list[int], probabilities: list[float]) -> tuple[Candidate, ...]:
        names = pieces(tokens) if pieces else [str(token) for token in tokens]
        return tuple(map(Candidate, tokens, names, probabilities))

    chosen = candidates(list(target_tokens[1:]), chosen_probability_T1[:, 0].tolist())
    likeliest = map(candidates, token_TC.tolist(), best_TC.tolist())
    return [DecodingStep(*step) for step in zip(chosen, rank_T.tolist(), likeliest, strict=True)]
