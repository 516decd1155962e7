"""Samples of a language model while it trains: how it goes on with beginnings of the validation text."""

from __future__ import annotations

import numpy as np

from transduce.data.blocks import Blocks
from transduce.inference.search.options import GENERATION_DEFAULTS, Request, SearchOptions
from transduce.inference.torch_engine import TorchEngine
from transduce.models.interface import AnyTransducer
from transduce.text.tokenizer import AnyTokenizer
from transduce.training.reporter import Sample

LONGEST_PROMPT, LONGEST_SAMPLE = 32, 48
"""Tokens of a block that are given, and tokens that are written; fewer where a block is short."""


def continuations(model: AnyTransducer, blocks: Blocks, tokenizer: AnyTokenizer, count: int) -> tuple[Sample, ...]:
    """Let a model go on with the beginnings of some blocks, evenly spread; the same draws each time."""
    rows = np.unique(np.linspace(0, len(blocks) - 1, num=min(count, len(blocks))).astype(np.int64))
    found = [block.tolist() for block in blocks.rows_of(rows)]
    given = [max(1, min(LONGEST_PROMPT, len(tokens) // 2)) for tokens in found]
    usual = SearchOptions.from_table(GENERATION_DEFAULTS, "how to go on")
    options = usual.but(max_length=min(LONGEST_SAMPLE, blocks.block), seed=1)
    requests = [
        Request(number, (), options, prefix=tokens[1:prompt], first=tokens[0])
        for number, (tokens, prompt) in enumerate(zip(found, given, strict=True))
    ]
    answers = TorchEngine(model, tokenizer.specials, tokenizer.specials).translate(requests)
    return tuple(
        Sample(
            source=tokenizer.decode(tokens[:prompt]),
            reference=tokenizer.decode(tokens[prompt : prompt + LONGEST_SAMPLE]),
            translation=tokenizer.decode(answer[0].tokens[prompt - 1 :]),
        )
        for tokens, prompt, answer in zip(found, given, answers, strict=True)
    )
