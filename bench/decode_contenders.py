"""Contenders of `bench/decode.py`: our search, and `generate` of Hugging Face's transformers on the same weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers
from torch import nn

from transduce.config import Config
from transduce.inference.search.options import Request, SearchOptions
from transduce.inference.torch_engine import TorchEngine
from transduce.interop.export_model import to_huggingface
from transduce.models.catalog import build
from transduce.models.interface import AnyTransducer, LanguageModel, Transducer, VocabularySizes
from transduce.text.tokenizer.special import Specials

PAD, START, END = SPECIALS = Specials(0, 1, 2)
VOCABULARY = 10_000
LENGTH = 20
"""Tokens of every translation."""

Answers = list[list[int]]
Contender = Callable[[Sequence[list[int]], int], Answers]
"""(sources, or the prompts of a language model; beam) -> tokens."""


def our_model(config: Config) -> AnyTransducer:
    """A model with random weights; with ten thousand tokens, it hardly ever ends within twenty."""
    model = build(config, VocabularySizes(VOCABULARY, VOCABULARY), seed=1)
    assert isinstance(model, Transducer)
    model.freeze()  # as a translator does with what it has loaded
    return model.eval()


def peer_of(model: AnyTransducer, config: Config) -> nn.Module:
    """The same weights as a model of `transformers`."""
    theirs = to_huggingface(model, config)
    special = {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": END, "decoder_start_token_id": START}
    settings = transformers.AutoConfig.for_model(**{**theirs.settings, **special}, forced_eos_token_id=None)
    peer: nn.Module = getattr(transformers, theirs.class_name)(settings).eval()
    unknown = peer.load_state_dict(theirs.weights, strict=False).unexpected_keys  # what is tied is there once
    assert not unknown, f"{theirs.class_name} has no {unknown}"
    return peer


def our_search(model: AnyTransducer) -> Contender:
    engine = TorchEngine(model, SPECIALS, SPECIALS)
    continues = isinstance(model, LanguageModel)

    def search(read: Sequence[list[int]], beam: int) -> Answers:
        options = SearchOptions(
            method="greedy" if beam == 1 else "beam", beam_size=beam, max_length=LENGTH, stop_rule="beam_finished"
        )
        requests = [
            Request(place, (), options, tokens, first=START) if continues else Request(place, tokens, options)
            for place, tokens in enumerate(read)
        ]
        begun = [len(request.prefix) for request in requests]
        found = engine.translate(requests)
        return [hypotheses[0].tokens[prompt:] for hypotheses, prompt in zip(found, begun, strict=True)]

    return search


def their_search(peer: Any, continues: bool) -> Contender:
    """Translations by `generate`: sources are padded on the right, prompts on the left."""

    def search(read: Sequence[list[int]], beam: int) -> Answers:
        longest = max(map(len, read)) + 1
        gaps = [[PAD] * (longest - 1 - len(tokens)) for tokens in read]
        rows = torch.tensor(
            [
                [*gap, START, *tokens] if continues else [*tokens, END, *gap]
                for tokens, gap in zip(read, gaps, strict=True)
            ]
        )
        with torch.inference_mode():
            found = peer.generate(
                input_ids=rows,
                attention_mask=(rows != PAD).long(),
                num_beams=beam,
                do_sample=False,
                max_new_tokens=LENGTH,
                length_penalty=0.6,
            )
        return [row[longest if continues else 1 :].tolist() for row in found]

    return search
