"""Shortlists of the sentences of a cohort: what is scored is their union, what may be chosen is each one's own.

A sentence's answer is that of a model which gives all other tokens no probability, whoever else is in the batch.

Letters: S sentences, R rows (sentences × openings), W openings of a sentence, V vocabulary, U tokens of the union.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from transduce.inference.search.sentence import Sentence
from transduce.models.interface import AnyTransducer, Scorer
from transduce.text.tokenizer.special import Specials


class Candidates:
    """The union of some sentences' lists, with the rows of the output layer that score it."""

    tokens: Tensor
    """(U), sorted: the token of each column."""
    specials: Specials
    """The columns of the special tokens, which are in every union."""

    def __init__(self, model: AnyTransducer, specials: Specials, width: int) -> None:
        self._model, self._framing, self._width = model, specials, width
        self._device = model.output.weight.device
        self._allowed_RU = torch.empty(0, 0, dtype=torch.bool)
        self._scorer: Scorer | None = None
        self._gathered = 0
        """How many sentences the union was made for."""

    def gather(self, sentences: Sequence[Sentence]) -> None:
        """Make the union for these sentences."""
        lists = [np.asarray(sentence.request.candidates, dtype=np.int64) for sentence in sentences]
        lists = [np.append(tokens, self._framing.end) for tokens in lists]
        union_U, column = np.unique(np.concatenate([*lists, np.array(self._framing)]), return_inverse=True)
        row = np.repeat(np.arange(len(lists)), [len(tokens) for tokens in lists])
        allowed_SU = np.zeros((len(lists), len(union_U)), dtype=np.bool_)
        allowed_SU[row, column[: len(row)]] = True
        self.specials = Specials(*column[len(row) :].tolist())
        self.tokens = torch.from_numpy(union_U).to(self._device)
        self._allowed_RU = torch.from_numpy(allowed_SU).to(self._device).repeat_interleave(self._width, dim=0)
        self._scorer, self._gathered = self._model.scorer(self.tokens), len(sentences)

    def keep(self, index: Tensor, sentences: Sequence[Sentence]) -> None:
        """Go on with these sentences only; the union becomes smaller when half of them have gone.  (S)."""
        if 2 * len(sentences) <= self._gathered:
            self.gather(sentences)
        else:
            allowed_SWU = self._allowed_RU.view(-1, self._width, len(self.tokens))
            self._allowed_RU = allowed_SWU[index].flatten(0, 1)

    def score(self, hidden: Tensor) -> Tensor:
        """Score the union, with minus infinity for what is not in a row's own list.  (R D) -> (R U)."""
        assert self._scorer is not None
        return self._scorer(hidden, self._allowed_RU)

    def spread(self, scores: Tensor) -> Tensor:
        """Put scores of the union where their tokens stand in the whole vocabulary.  (W U) -> (W V)."""
        whole_WV = torch.full((len(scores), self._model.sizes.target), -torch.inf, device=self._device)
        whole_WV[:, self.tokens] = scores
        return whole_WV
