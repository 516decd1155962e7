"""A finished text again, by teacher forcing, and its next-token distributions. A live search is never affected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.errors import DataError, SettingsError, TransduceError
from transduce.models.interface import AnyTransducer
from transduce.nn.hook import eval_mode

Pieces = Callable[[Sequence[int]], Sequence[str]]
"""Names tokens."""
CHUNK = 64
"""Positions that are scored at once: the scores of a long text over a large vocabulary do not fit in memory."""


def replay(model: AnyTransducer, source_tokens: Sequence[int], read_tokens: Sequence[int]) -> Tensor:
    """Run a model over tokens in evaluation mode; vector t predicts the token after token t.  -> (T D).

    A language model has no source; `source_tokens` is empty.
    """
    if model.has_source and not source_tokens:
        raise DataError("the source has no tokens, not even an end token; give a text")
    if not read_tokens:
        raise DataError("the target has no token after the start token; give a text")
    source_1S = torch.tensor([list(source_tokens)], dtype=torch.long, device=model.device)
    read_1T = torch.tensor([list(read_tokens)], device=model.device)
    with eval_mode(model), torch.no_grad():
        memory = model.encode(source_1S, torch.ones_like(source_1S, dtype=torch.bool))
        hidden: Tensor = model(read_1T, memory)[0]
    return hidden


@dataclass(frozen=True)
class ForcedDecoding:
    """A finished text as a model reads it again by teacher forcing: what it read, and the token after each token."""

    source_tokens: tuple[int, ...]
    """What the encoder reads, its end token included; empty for a language model."""
    read_tokens: tuple[int, ...]
    """T tokens that the decoder reads: the start token and all that was produced but the last; or a prompt."""
    produced_tokens: tuple[int, ...]
    """The token after each of them; of a prompt, none after the last."""
    source_pieces: tuple[str, ...]
    read_pieces: tuple[str, ...]
    produced_pieces: tuple[str, ...]
    source: str = ""
    """The source text, or the prompt."""
    output: str = ""
    """The translation or continuation."""

    @property
    def target_tokens(self) -> tuple[int, ...]:
        """All tokens of the target: the first that was read, and those that were produced."""
        return (*self.read_tokens[:1], *self.produced_tokens)

    def step(self, position: int) -> int:
        """Return a position as an index from 0; -1 is the last."""
        count = len(self.read_tokens)
        if not -count <= position < count:
            raise SettingsError(f"no position {position}; the text has positions 0 to {count - 1}")
        return position % count


def token_log_probabilities(model: AnyTransducer, forced: ForcedDecoding) -> list[float]:
    """Return the log-probability of each produced token, given those before it."""
    hidden_TD = replay(model, forced.source_tokens, forced.read_tokens)
    found: list[float] = []
    for start in range(0, len(forced.produced_tokens), CHUNK):
        token_C = torch.tensor(forced.produced_tokens[start : start + CHUNK], device=hidden_TD.device)
        with torch.no_grad():
            logit_CV = model.logits(hidden_TD[start : start + len(token_C)]).float()
        found += logit_CV.log_softmax(dim=-1).gather(1, token_C[:, None])[:, 0].tolist()
    return found


@dataclass(frozen=True)
class Candidate:
    """A token that could come next."""

    token: int
    piece: str
    probability: float
    """Softmax of the logit, over the whole vocabulary."""
    logit: float
    """Score of the output layer."""


@dataclass(frozen=True)
class DecodingStep:
    """The next-token distribution at one position, and the token that followed."""

    position: int
    """Number of the position from 0: of the row of an attention map, or of a masked token."""
    chosen: Candidate | None
    """The token that followed; None after the last token of a text."""
    rank: int | None
    """1 + how many tokens were more likely than the one that followed; a beam need not take the likeliest."""
    top: tuple[Candidate, ...]
    """The likeliest tokens, best first."""
    entropy: float
    """Entropy of the distribution in bits; 0 if one token has all of the probability."""


def next_tokens(
    model: AnyTransducer,
    source_tokens: Sequence[int],
    target_tokens: Sequence[int],
    top: int = 5,
    pieces: Pieces | None = None,
) -> list[DecodingStep]:
    """Return a step for each token of a target after its start token; arguments as for `attention_of`.

    `pieces` names tokens of the target side; without it they are named by their numbers.
    """
    return decoding_steps(
        model, replay(model, source_tokens, target_tokens[:-1]), target_tokens[1:], top, pieces or _numbers
    )


def decoding_steps(
    model: AnyTransducer, hidden: Tensor, followed: Sequence[int], top: int, pieces: Pieces
) -> list[DecodingStep]:
    """Return the steps of hidden vectors (T D); `followed` are the tokens that came next, as far as there are any."""
    if top < 1:
        raise SettingsError(f"top = {top} is invalid; request at least 1 token")
    steps: list[DecodingStep] = []
    for start in range(0, len(hidden), CHUNK):
        with torch.no_grad():
            logit_CV = model.logits(hidden[start : start + CHUNK])
        positions = range(start, start + len(logit_CV))
        steps += steps_of_logits(logit_CV, positions, followed[start : start + CHUNK], top, pieces)
    return steps


def steps_of_logits(
    logits: Tensor, positions: Sequence[int], followed: Sequence[int], top: int, pieces: Pieces
) -> Iterator[DecodingStep]:
    """Yield the steps of some positions by their logits (C V)."""
    logit_CV = logits.float().cpu()
    log_probability_CV = logit_CV.log_softmax(dim=-1)
    probability_CV = log_probability_CV.exp()
    if not bool(probability_CV.isfinite().all()):
        raise TransduceError("the next-token scores are not numbers; the model is damaged or its training diverged")
    entropy_C = torch.special.entr(probability_CV).sum(dim=-1) / torch.log(torch.tensor(2.0))
    likeliest_CK = probability_CV.topk(min(top, probability_CV.shape[1]), dim=1).indices

    def candidates(place: int, tokens: list[int]) -> tuple[Candidate, ...]:
        values = probability_CV[place, tokens].tolist(), logit_CV[place, tokens].tolist()
        return tuple(map(Candidate, tokens, pieces(tokens), *values))

    for place, (probability_V, best) in enumerate(zip(probability_CV, likeliest_CK.tolist(), strict=True)):
        chosen, rank = None, None
        if place < len(followed):
            (chosen,) = candidates(place, [followed[place]])
            rank = int((probability_V > probability_V[followed[place]]).sum()) + 1
        yield DecodingStep(positions[place], chosen, rank, candidates(place, best), float(entropy_C[place]))


def _numbers(tokens: Sequence[int]) -> list[str]:
    return [str(token) for token in tokens]
