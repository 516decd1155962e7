"""Shortlists of a batch group: their union is scored, and each request chooses from its own.

A request gets the hypotheses of a model that gives all other tokens no probability, whatever else is in the batch.

Letters: B requests, R rows (requests × beams), W beams of a request, V vocabulary, U tokens of the union.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from transduce.inference.search.active_request import ActiveRequest
from transduce.models.interface import AnyTransducer, Scorer
from transduce.text.tokenizer.special import Specials


class ShortlistScorer:
    """The union of the shortlists of some requests, with the rows of the output layer that score it."""

    tokens: Tensor
    """(U), sorted: the token of each column."""
    specials: Specials
    """The columns of the special tokens, which are in every union."""

    def __init__(self, model: AnyTransducer, specials: Specials, width: int) -> None:
        self._model, self._specials, self._width = model, specials, width
        self._device = model.output.weight.device
        self._allowed_RU = torch.empty(0, 0, dtype=torch.bool)
        self._scorer: Scorer | None = None
        self._gathered = 0
        """Number of requests that the union was made for."""

    def gather(self, requests: Sequence[ActiveRequest]) -> None:
        """Make the union for these requests."""
        lists = [np.asarray(active.request.shortlist, dtype=np.int64) for active in requests]
        lists = [np.append(tokens, self._specials.end) for tokens in lists]
        union_U, column = np.unique(np.concatenate([*lists, np.array(self._specials)]), return_inverse=True)
        row = np.repeat(np.arange(len(lists)), [len(tokens) for tokens in lists])
        allowed_BU = np.zeros((len(lists), len(union_U)), dtype=np.bool_)
        allowed_BU[row, column[: len(row)]] = True
        self.specials = Specials(*column[len(row) :].tolist())
        self.tokens = torch.from_numpy(union_U).to(self._device)
        self._allowed_RU = torch.from_numpy(allowed_BU).to(self._device).repeat_interleave(self._width, dim=0)
        self._scorer, self._gathered = self._model.scorer(self.tokens), len(requests)

    def keep(self, index: Tensor, requests: Sequence[ActiveRequest]) -> None:
        """Keep these requests only; the union is made anew when half of them are gone.  (B)."""
        if 2 * len(requests) <= self._gathered:
            self.gather(requests)
        else:
            allowed_BWU = self._allowed_RU.view(-1, self._width, len(self.tokens))
            self._allowed_RU = allowed_BWU[index].flatten(0, 1)

    def score(self, hidden: Tensor) -> Tensor:
        """Score the union, with minus infinity for what is not in a row's own list.  (R D) -> (R U)."""
        assert self._scorer is not None
        return self._scorer(hidden, self._allowed_RU)

    def spread(self, scores: Tensor) -> Tensor:
        """Put scores of the union at the places of their tokens in the vocabulary.  (W U) -> (W V)."""
        whole_WV = torch.full((len(scores), self._model.sizes.target), -torch.inf, device=self._device)
        whole_WV[:, self.tokens] = scores
        return whole_WV
