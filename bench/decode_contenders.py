"""Contenders of `bench/decode.py`: our search, `generate` of Hugging Face's transformers, and CTranslate2, on the same
weights.

Random weights never end a translation. So the end token of an encoder-decoder with sinusoidal positions gets an
embedding that makes it likely after about `MEAN` tokens, a little earlier or later in each translation. The other
architectures write `LENGTH` tokens.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

from transduce.config import Config
from transduce.inference.ctranslate2.export import Quantization, library, write_files
from transduce.inference.padding import source_batch, target_batch
from transduce.inference.search.options import Request, SearchOptions
from transduce.inference.torch_engine import TorchEngine
from transduce.interop.export_model import to_huggingface
from transduce.model_folder import ModelFolder
from transduce.models.catalog import build
from transduce.models.interface import AnyTransducer, LanguageModel, Transducer, VocabularySizes
from transduce.models.transformer import Transformer
from transduce.text.tokenizer.special import Specials
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

PAD, START, END = SPECIALS = Specials(0, 1, 2)
VOCABULARY = 10_000
FIRST_WORD = 4
"""The first token after the special ones, with the unknown word."""
LENGTH = 20
"""Tokens that a model writes which does not end its translations."""
MEAN, LONGEST = 13, 60
"""About the mean length in tokens of translations that end, as in Multi30k, and their maximum."""
CALIBRATED, WRITTEN = 96, 40
"""Sources from which the embedding of the end token is computed, and tokens of their translations."""
SLOPE = 0.5
"""How much the logit of the end token should grow with each token, over that of the likeliest one."""

Answers = list[list[int]]
Contender = Callable[[Sequence[list[int]], int], Answers]
"""(sources, or the prompts of a language model; beam) -> tokens."""


def our_model(config: Config, vocabulary: int = VOCABULARY) -> AnyTransducer:
    """A model with random weights, which ends its translations if it has sinusoidal positions."""
    model = build(config, VocabularySizes(vocabulary, vocabulary), seed=1).eval()
    assert isinstance(model, Transducer)
    if ends(model):
        assert isinstance(model, Transformer)
        end_translations(model)
    model.freeze()  # as a translator does with what it has loaded
    return model


def ends(model: AnyTransducer) -> bool:
    """Whether the model ends its translations."""
    return isinstance(model, Transformer) and model.config.positions == "sinusoidal"


@torch.inference_mode()
def end_translations(model: Transformer) -> None:
    """Give the end token the embedding with which it is as likely as the likeliest token about where a translation
    should end, more likely later and less likely before: least squares over greedy translations without it.

    The decoder never reads the end token, so nothing else changes.
    """
    random = np.random.default_rng(3)
    lengths = np.clip(np.exp(random.normal(2.6, 0.33, CALIBRATED)).astype(int), 4, 48)
    read = [random.integers(FIRST_WORD, model.sizes.source, length).tolist() for length in lengths]
    model.output.weight[END] = 0.0
    written = our_search(model)(read, 1)
    cpu = torch.device("cpu")
    memory = model.encode(*source_batch(read, SPECIALS, cpu))
    hidden_BTD = model(target_batch([tokens[:-1] for tokens in written], SPECIALS, cpu)[0], memory)[:, :WRITTEN]
    likeliest_BT = model.logits(hidden_BTD.flatten(0, 1)).amax(dim=-1).view(hidden_BTD.shape[:2])
    after_T = torch.arange(hidden_BTD.shape[1]) - MEAN
    wanted_N = (likeliest_BT + SLOPE * after_T).flatten()
    model.output.weight[END] = torch.linalg.lstsq(hidden_BTD.flatten(0, 1), wanted_N[:, None]).solution[:, 0]


def limit(model: AnyTransducer) -> int:
    """The maximum length of translations."""
    return LONGEST if ends(model) else LENGTH


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
            method="greedy" if beam == 1 else "beam",
            beam_size=beam,
            max_length=limit(model),
            stop_rule="beam_finished",
            length_normalization="power",
            length_penalty=0.6,
        )
        requests = [
            Request(place, (), options, tokens, first=START) if continues else Request(place, tokens, options)
            for place, tokens in enumerate(read)
        ]
        begun = [len(request.prefix) for request in requests]
        found = engine.translate(requests)
        return [hypotheses[0].tokens[prompt:] for hypotheses, prompt in zip(found, begun, strict=True)]

    return search


def their_search(peer: Any, continues: bool, longest: int) -> Contender:
    """Translations by `generate`: sources are padded on the right, prompts on the left."""

    def search(read: Sequence[list[int]], beam: int) -> Answers:
        width = max(map(len, read)) + 1
        gaps = [[PAD] * (width - 1 - len(tokens)) for tokens in read]
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
                max_new_tokens=longest,
                **({"length_penalty": 0.6, "early_stopping": True} if beam > 1 else {}),
            )
        written = [row[width if continues else 1 :].tolist() for row in found]
        return [row[: row.index(END)] if END in row else row for row in written]

    return search


def ctranslate2_search(model: Transformer, quantization: Quantization, threads: int) -> Contender:
    """CTranslate2 with the same weights, one batch at a time; it needs a tokenizer, of words w0, w1, …"""
    size = model.sizes.target
    lines = [" ".join(f"w{number}" for number in range(size - FIRST_WORD))]
    words = train_tokenizer("word", lines, TokenizerConfig(vocab_size=size, min_frequency=1))
    assert words.size == size and words.specials == SPECIALS
    with tempfile.TemporaryDirectory() as folder:
        write_files(ModelFolder(model, model.config, words, words), Path(folder), quantization, None)
        translator = library().Translator(folder, device="cpu", inter_threads=1, intra_threads=threads)
    tokens_of = {piece: token for token, piece in enumerate(words.vocabulary)}

    def search(read: Sequence[list[int]], beam: int) -> Answers:
        found = translator.translate_batch(
            [[words.vocabulary[token] for token in tokens] for tokens in read],
            beam_size=beam,
            length_penalty=0.6 if beam > 1 else 0.0,
            max_decoding_length=limit(model),
            max_input_length=0,
        )
        return [[tokens_of[piece] for piece in result.hypotheses[0]] for result in found]

    return search
