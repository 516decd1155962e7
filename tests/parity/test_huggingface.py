"""Members of the family beside `transformers`, with the same random weights: answers, gradients, searches, names.

Sizes are small primes where they can be, so that a swapped axis cannot pass; all weights are drawn, biases and norms
too, so that none can be left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from transduce.config import Config
from transduce.inference.search.options import Request, SearchOptions
from transduce.inference.torch_engine import TorchEngine
from transduce.interop.huggingface.architecture import (
    Architecture,
    InMemoryWeights,
    Settings,
    export_mapped,
    load_mapped,
)
from transduce.interop.huggingface.language_model import GPT2, LLAMA
from transduce.interop.huggingface.seq2seq import M2M100, MARIAN, PEGASUS
from transduce.interop.huggingface.t5 import T5
from transduce.model_folder import weights_of
from transduce.models.catalog import build
from transduce.models.interface import AnyTransducer, LanguageModel, VocabularySizes
from transduce.text.tokenizer.special import Specials

VOCABULARY = 31
PAD, END = 0, 2


@dataclass(frozen=True)
class Case:
    """One architecture at one size."""

    name: str
    family: Architecture
    make: Callable[[], Any]
    start: int = PAD


def seq2seq(kind: str, **settings: Any) -> Any:
    sizes: dict[str, Any] = {
        "d_model": 14,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 17,
        "decoder_ffn_dim": 17,
        "max_position_embeddings": 64,
        "scale_embedding": True,
        "vocab_size": VOCABULARY,
        "pad_token_id": PAD,
        "eos_token_id": END,
        "bos_token_id": None,
        "decoder_start_token_id": PAD,
        "forced_eos_token_id": None,
    }
    return getattr(transformers, f"{kind}Config")(**{**sizes, **settings})


def t5(**settings: Any) -> Any:
    sizes: dict[str, Any] = {"d_model": 14, "d_kv": 5, "d_ff": 17, "num_layers": 2, "num_heads": 3}
    sizes |= {"vocab_size": VOCABULARY, "pad_token_id": PAD, "eos_token_id": END, "decoder_start_token_id": PAD}
    return transformers.T5Config(**{**sizes, **settings})


def llama(**settings: Any) -> Any:
    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 19, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCABULARY}
    sizes |= {"pad_token_id": PAD, "eos_token_id": END, "bos_token_id": None}
    return transformers.LlamaConfig(**{**sizes, **settings})


def gpt2(**settings: Any) -> Any:
    sizes: dict[str, Any] = {"n_embd": 14, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": VOCABULARY}
    sizes |= {"pad_token_id": PAD, "eos_token_id": END, "bos_token_id": None}
    return transformers.GPT2Config(**{**sizes, **settings})


CASES = [
    Case("marian", MARIAN, lambda: transformers.MarianMTModel(seq2seq("Marian", activation_function="swish"))),
    Case(
        "marian-uneven",
        MARIAN,
        lambda: transformers.MarianMTModel(
            seq2seq("Marian", d_model=22, encoder_layers=3, decoder_layers=1, activation_function="relu")
        ),
    ),
    Case("pegasus", PEGASUS, lambda: transformers.PegasusForConditionalGeneration(seq2seq("Pegasus"))),
    Case(
        "m2m100",
        M2M100,
        lambda: transformers.M2M100ForConditionalGeneration(
            seq2seq("M2M100", pad_token_id=1, eos_token_id=END, decoder_start_token_id=END)
        ),
        start=END,
    ),
    Case("t5", T5, lambda: transformers.T5ForConditionalGeneration(t5())),
    Case(
        "t5-gated",
        T5,
        lambda: transformers.T5ForConditionalGeneration(
            t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False, num_decoder_layers=1, num_heads=2)
        ),
    ),
    Case("gpt2", GPT2, lambda: transformers.GPT2LMHeadModel(gpt2())),
    Case("gpt2-wide", GPT2, lambda: transformers.GPT2LMHeadModel(gpt2(n_embd=21, n_head=3, n_inner=29, n_layer=3))),
    Case("llama", LLAMA, lambda: transformers.LlamaForCausalLM(llama())),
    Case(
        "llama-tied",
        LLAMA,
        lambda: transformers.LlamaForCausalLM(
            llama(tie_word_embeddings=True, num_key_value_heads=1, head_dim=6, attention_bias=True)
        ),
    ),
]


def theirs_of(case: Case) -> Any:
    """Their model with every weight drawn; what is not trained (sinusoids) stays."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = case.make().eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "embed_positions" not in name:
                    spread = 0.3 if parameter.dim() > 1 else 0.1
                    parameter.copy_(torch.randn(parameter.shape) * spread + ("norm" in name or ".ln_" in name))
            if hasattr(model, "final_logits_bias"):
                model.final_logits_bias.copy_(torch.randn(model.final_logits_bias.shape))
    return model


def ours_of(case: Case, theirs: Any) -> tuple[AnyTransducer, Config]:
    """The same model here, by what the importer does."""
    found = InMemoryWeights(theirs.state_dict())
    config = case.family.read(Settings(theirs.config.to_dict(), "config.json"), found)
    model = build(config, VocabularySizes(VOCABULARY, VOCABULARY))
    taken = load_mapped(case.family.weight_map(config), found, case.family.ignored, "weights")
    assert taken.keys() == weights_of(model).keys()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(taken[name])
    return model.to(theirs.dtype).eval(), config


def draw(rows: int, length: int, seed: int) -> Tensor:
    return torch.randint(3, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def _rms_norm(norm: Any, hidden: Tensor) -> Tensor:
    return torch.nn.functional.rms_norm(hidden, hidden.shape[-1:], norm.weight, norm.variance_epsilon)


def both_logits(case: Case, ours: AnyTransducer, theirs: Any) -> tuple[Tensor, Tensor]:
    """Scores of targets, some of whose sources are padded on the right."""
    target = draw(3, 11, 2)
    if isinstance(ours, LanguageModel):
        empty = torch.empty(3, 0, dtype=torch.long)
        return ours.logits(ours(target, ours.encode(empty, empty.bool()))), theirs(target).logits
    source, allowed = draw(3, 7, 1), torch.arange(7) < torch.tensor([7, 4, 1])[:, None]
    found = ours.logits(ours(target, ours.encode(source, allowed)))
    # one of them counts positions by the tokens that are not padding
    pad = theirs.config.pad_token_id
    expected = theirs(
        input_ids=source.masked_fill(~allowed, pad), attention_mask=allowed.long(), decoder_input_ids=target
    )
    return found, expected.logits


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    assert isinstance(request.param, Case)
    return request.param


@pytest.mark.parametrize(("dtype", "nearness"), [(torch.float32, 2e-5), (torch.float64, 1e-6)])
def test_scores_are_theirs(case: Case, dtype: torch.dtype, nearness: float) -> None:
    theirs = theirs_of(case).to(dtype)
    for module in theirs.modules():  # theirs rounds to float32 inside, whatever the model's precision
        if type(module).__name__ in ("LlamaRMSNorm", "T5LayerNorm"):
            module.forward = partial(_rms_norm, module)
    ours, _ = ours_of(case, theirs)
    with torch.no_grad():
        found, expected = both_logits(case, ours, theirs)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=nearness)


def test_gradients_are_theirs(case: Case) -> None:
    theirs = theirs_of(case).double()
    ours, config = ours_of(case, theirs)
    for logits in both_logits(case, ours, theirs):
        weight = torch.randn(logits.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        (logits.log_softmax(-1) * weight).sum().backward()
    mine = {name: parameter.grad for name, parameter in ours.named_parameters() if parameter.grad is not None}
    weight_map = [mapping for mapping in case.family.weight_map(config) if mapping.name in mine]
    found = export_mapped(weight_map, mine)
    expected = {name: parameter.grad for name, parameter in theirs.named_parameters() if parameter.grad is not None}
    assert expected.keys() <= found.keys()
    for name, gradient in expected.items():
        distance = (found[name] - gradient).norm() / gradient.norm().clamp(min=1e-9)
        assert distance < 1e-4, name


@pytest.mark.parametrize("beam", [1, 4])
def test_searches_find_what_theirs_find(case: Case, beam: int) -> None:
    theirs = theirs_of(case)
    ours, _ = ours_of(case, theirs)
    specials = Specials(theirs.config.pad_token_id, case.start, END)
    options = SearchOptions(
        method="greedy" if beam == 1 else "beam",
        beam_size=beam,
        length_penalty=0.0,
        stop_rule="beam_finished",
        max_length=12,
    )
    wanted = {"num_beams": beam, "do_sample": False, "length_penalty": 0.0, "early_stopping": True}
    for seed in range(20):
        source = draw(1, 2 + seed % 5, 100 + seed)
        tokens = source[0].tolist()
        if isinstance(ours, LanguageModel):
            prompt = Specials(specials.pad, tokens[0], END)
            request = Request(0, (), options, prefix=tokens[1:])
            (answer,) = TorchEngine(ours, specials, prompt).translate([request])
            best, given = answer[0].tokens[len(tokens) - 1 :], len(tokens)
        else:
            (answer,) = TorchEngine(ours, Specials(specials.pad, END, END), specials).translate(
                [Request(0, tokens[:-1], options)]
            )
            source[0, -1] = END
            best, given = answer[0].tokens, 1
        never = [[token] for token in {specials.pad, tokens[0] if given > 1 else specials.pad} - {END}]
        written = theirs.generate(
            source, attention_mask=torch.ones_like(source), bad_words_ids=never, max_new_tokens=12, **wanted
        )[0, given:].tolist()
        assert best == [token for token in written if token not in (specials.pad, END)], seed


def test_names_and_settings_come_back_bit_by_bit(case: Case) -> None:
    theirs = theirs_of(case)
    ours, config = ours_of(case, theirs)
    written = export_mapped(case.family.weight_map(config), weights_of(ours)) | case.family.added(config, {})
    again = type(theirs.config)(
        **{**theirs.config.to_dict(), **case.family.write(config, VocabularySizes(VOCABULARY, VOCABULARY))}
    )
    copy: nn.Module = type(theirs)(again)
    lacking, foreign = copy.load_state_dict(written, strict=False)
    assert not foreign
    known = {
        name
        for mapping in case.family.weight_map(config)
        for names in mapping.source_names
        for name in names.split("|")
    }
    assert set(lacking) <= known  # other names of one tensor
    copy.tie_weights()
    for name, weight in theirs.state_dict().items():
        if "embed_positions" not in name:
            assert torch.equal(copy.state_dict()[name], weight), name
    assert case.family.read(Settings(again.to_dict(), "config.json"), InMemoryWeights(written)) == config


@pytest.mark.parametrize(
    ("make", "family", "count"),
    [
        (lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config()), GPT2, 124_439_808),
        (lambda: transformers.T5ForConditionalGeneration(transformers.T5Config()), T5, 60_506_624),
    ],
    ids=["gpt2", "t5-small"],
)
def test_public_sizes_are_counted_exactly(make: Callable[[], Any], family: Architecture, count: int) -> None:
    with torch.device("meta"):
        theirs = make()
        settings = Settings(theirs.config.to_dict(), "config.json")
        config = family.read(settings, InMemoryWeights({}) if family is GPT2 else _OnlyShapes(theirs.state_dict()))
        size = theirs.config.vocab_size
        ours = build(config, VocabularySizes(size, size))
    assert sum(parameter.numel() for parameter in ours.parameters()) == count


class _OnlyShapes(InMemoryWeights):
    """Weights without values, none of which is another's copy by name."""

    @property
    def names(self) -> frozenset[str]:
        return super().names - {"lm_head.weight"}
