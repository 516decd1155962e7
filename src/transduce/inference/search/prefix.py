"""What an answer begins with, where a person gave a beginning: read at once, not token by token.

Letters: S sentences, P tokens of the longest prefix, R rows (sentences × openings).
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
class Opening:
    """The prefixes of some sentences, many of them empty."""

    tokens: Tensor
    """(S P), zeros behind a shorter one."""
    lengths: Tensor
    """(S)"""
    last: Tensor
    """(S), what the next step reads: the last token of the prefix, or what stands first."""
    first: Tensor
    """(S), what stands before the prefix: the start token, or a request's own."""
    scored: Tensor
    """(S), whether a prefix counts as said; a prompt does not."""

    @classmethod
    def of(cls, requests: Sequence[Request], specials: Specials, device: torch.device) -> Opening:
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
        """Let a new state read all but the last token; return it with the prefixes' log-probabilities.  -> (S)."""
        longest = self.tokens.shape[1]
        if not longest:
            return state, torch.zeros(len(self.tokens), device=self.tokens.device)
        input_SP = torch.cat([self.first[:, None], self.tokens[:, :-1]], dim=1)
        input_RP, length_R = (part.repeat_interleave(state.width, dim=0) for part in (input_SP, self.lengths))
        hidden_RPD, state = model.extend(input_RP, length_R, state)
        if not bool(self.scored.any()):
            return state, torch.zeros(len(self.tokens), device=self.tokens.device)
        hidden_SPD = hidden_RPD[:: state.width]
        score_SP = torch.cat(  # place by place: all at once would need room for P times the vocabulary
            [
                model.logits(hidden_SPD[:, place]).float().log_softmax(dim=-1).gather(1, self.tokens[:, place, None])
                for place in range(longest)
            ],
            dim=1,
        )
        real_SP = torch.arange(longest, device=self.tokens.device) < (self.lengths * self.scored)[:, None]
        return state, score_SP.where(real_SP, 0.0).sum(dim=1)
