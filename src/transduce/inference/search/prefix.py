"""Prefixes that hypotheses must begin with, read by the decoder at once and not token by token.

Letters: B requests, P tokens of the longest prefix, R rows (requests × beams).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.inference.search.options import Request
from transduce.models.interface import AnyTransducer, State
from transduce.text.tokenizer.special import Specials


@dataclass(frozen=True)
class Prefix:
    """The prefixes of some requests, many of them empty."""

    tokens: Tensor
    """(B P), padded with zeros."""
    lengths: Tensor
    """(B)"""
    last: Tensor
    """(B), what the next step reads: the last token of the prefix, or the first token."""
    first: Tensor
    """(B), the token before the prefix: the start token, or a request's own."""
    scored: Tensor
    """(B), whether the prefix is scored; a prompt is not."""

    @classmethod
    def of(cls, requests: Sequence[Request], specials: Specials, device: torch.device) -> Prefix:
        """Pad the prefixes of requests."""
        prefixes = [request.prefix for request in requests]
        longest = max(map(len, prefixes), default=0)
        rows = [[*prefix, *[0] * (longest - len(prefix))] for prefix in prefixes]
        firsts = [specials.start if request.first is None else request.first for request in requests]
        last = [prefix[-1] if prefix else first for prefix, first in zip(prefixes, firsts, strict=True)]
        return cls(
            tokens=torch.tensor(rows, dtype=torch.long, device=device).view(len(prefixes), longest),
            lengths=torch.tensor([len(prefix) for prefix in prefixes], dtype=torch.long, device=device),
            last=torch.tensor(last, dtype=torch.long, device=device),
            first=torch.tensor(firsts, dtype=torch.long, device=device),
            scored=torch.tensor([request.first is None for request in requests], device=device),
        )

    def read(self, model: AnyTransducer, state: State) -> tuple[State, Tensor]:
        """Extend a new state by all but the last token; return it with the prefixes' log-probabilities.  -> (B)."""
        longest = self.tokens.shape[1]
        if not longest:
            return state, torch.zeros(len(self.tokens), device=self.tokens.device)
        input_BP = torch.cat([self.first[:, None], self.tokens[:, :-1]], dim=1)
        input_RP, length_R = (part.repeat_interleave(state.width, dim=0) for part in (input_BP, self.lengths))
        hidden_RPD, state = model.extend(input_RP, length_R, state)
        if not bool(self.scored.any()):
            return state, torch.zeros(len(self.tokens), device=self.tokens.device)
        hidden_BPD = hidden_RPD[:: state.width]
        score_BP = torch.cat(  # one position at a time: all at once would need memory for P times the vocabulary
            [
                model.logits(hidden_BPD[:, place]).float().log_softmax(dim=-1).gather(1, self.tokens[:, place, None])
                for place in range(longest)
            ],
            dim=1,
        )
        real_BP = torch.arange(longest, device=self.tokens.device) < (self.lengths * self.scored)[:, None]
        return state, score_BP.where(real_BP, 0.0).sum(dim=1)
