"""The language-modelling part of a validation: continuations of the beginnings of some validation blocks."""

from __future__ import annotations

import numpy as np

from transduce.data.blocks import Blocks
from transduce.inference.search.options import GENERATION_DEFAULTS, Request, SearchOptions
from transduce.inference.torch_engine import TorchEngine
from transduce.models.interface import AnyTransducer
from transduce.text.tokenizer import AnyTokenizer
from transduce.training.reporter import Sample
from transduce.training.validation import SAMPLES, Predictions
from transduce.training.workers import Workers

MAX_PROMPT, MAX_CONTINUATION = 32, 48
"""Tokens of a block that are given, and tokens that are generated; fewer where a block is short."""


class Continuations:
    """Continues the beginnings of a few blocks, evenly spread; the same random draws each time."""

    def __init__(self, blocks: Blocks, tokenizer: AnyTokenizer) -> None:
        self.blocks, self.tokenizer = blocks, tokenizer

    def __call__(self, workers: Workers) -> Predictions:
        """Sample with one thread."""
        return Predictions(samples=workers.each(lambda model, _: self.samples(model), 1)[0])

    def samples(self, model: AnyTransducer) -> tuple[Sample, ...]:
        """Return the continuations next to the true text."""
        blocks, tokenizer = self.blocks, self.tokenizer
        rows = np.unique(np.linspace(0, len(blocks) - 1, num=min(SAMPLES, len(blocks))).astype(np.int64))
        found = [block.tolist() for block in blocks.rows_of(rows)]
        given = [max(1, min(MAX_PROMPT, len(tokens) // 2)) for tokens in found]
        default = SearchOptions.from_table(GENERATION_DEFAULTS, "continuations")
        options = default.but(max_length=min(MAX_CONTINUATION, blocks.block), seed=1)
        requests = [
            Request(number, (), options, prefix=tokens[1:prompt], first=tokens[0])
            for number, (tokens, prompt) in enumerate(zip(found, given, strict=True))
        ]
        hypotheses = TorchEngine(model, tokenizer.specials, tokenizer.specials).translate(requests)
        return tuple(
            Sample(
                source=tokenizer.decode(tokens[:prompt]),
                reference=tokenizer.decode(tokens[prompt : prompt + MAX_CONTINUATION]),
                translation=tokenizer.decode(hypothesis[0].tokens[prompt - 1 :]),
            )
            for tokens, prompt, hypothesis in zip(found, given, hypotheses, strict=True)
        )
