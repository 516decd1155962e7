"""CTranslate2 against our own search, on the same weights: every kind of Transformer that can be exported."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from tests.unit.copy_translator import tokenizer
from transduce.errors import SettingsError
from transduce.inference.ctranslate2.engine import CTranslate2Engine, Parallelism, request_rejection
from transduce.inference.ctranslate2.export import export, model_rejection
from transduce.inference.search.options import Request, SearchOptions
from transduce.inference.torch_engine import TorchEngine
from transduce.model_folder import ModelFolder
from transduce.models.interface import VocabularySizes
from transduce.models.rnn import Rnn, RnnConfig
from transduce.models.transformer import Transformer, TransformerConfig

ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed; pip install 'transduce[fast]'")

BASE = TransformerConfig(model_dim=16, num_heads=2, ffn_dim=23, num_layers=2)
CONFIGS = {
    "the paper's": BASE,
    "pre-norm": BASE.but(norm="pre"),
    "with biases": BASE.but(attention_bias=True, output_bias=True),
    "gelu": BASE.but(activation="gelu", norm="pre"),
    "gated": BASE.but(activation="swiglu"),
    "learned positions": BASE.but(positions="learned", max_positions=64),
    "T5": BASE.but(norm="pre", norm_kind="rms", norm_eps=1e-6, positions="buckets", scale_attention=False),
    "GeGLU": BASE.but(activation="geglu", ffn_bias=True, scale_output=True, scale_embeddings=False),
    "SiLU": BASE.but(activation="silu", ffn_bias=False, positions="sinusoidal_marian", output_bias=True),
    "rotary": BASE.but(norm="pre", positions="rotary", rotary_base=500.0),
    "half tied": BASE.but(tied_embeddings="target"),
    "not tied": BASE.but(tied_embeddings="none"),
    "shallow decoder": BASE.but(decoder_layers=1),
    "wide heads": BASE.but(key_dim=13, value_dim=13),
}


def folder(config: TransformerConfig, seed: int = 1) -> ModelFolder:
    """A model that says something: random weights, large enough for answers to differ.

    The end is made like the token that it says most, so that answers end; what else frames a sentence is never said.
    """
    known = tokenizer("bpe")
    torch.manual_seed(seed)
    model = Transformer(config, VocabularySizes(known.size, known.size)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if parameter.dim() == 1 else 0.0, std=0.3)
    with torch.no_grad():
        for token in (known.pad, known.start):
            model.output.weight[token] = 0.0
        message = TorchEngine(model, known.specials, known.specials).translate(requests(method="greedy", max_length=20))
        ((common, _),) = Counter(token for (answer,) in message for token in answer.tokens[2:]).most_common(1)
        model.output.weight[known.end] = 1.02 * model.output.weight[common]
        if model.output.bias is not None:
            model.output.bias[known.end] = model.output.bias[common]
    return ModelFolder(model, config, known, known)


def engines(contents: ModelFolder) -> tuple[TorchEngine, CTranslate2Engine]:
    specials = contents.source_tokenizer.specials
    fast = CTranslate2Engine(contents, parallelism=Parallelism(workers=1))
    return TorchEngine(contents.model, specials, specials), fast


def requests(**given: object) -> list[Request]:
    known = tokenizer("bpe")
    options = SearchOptions.from_table(
        {"length_normalization": "power", "stop_rule": "beam_finished", **given}, "a test"
    )
    texts = [
        "the quick brown fox",
        "ten small cats sleep under one old tree",
        "dog",
        "東京 ist schön",
        "lazy",
        "fox dog",
    ]
    forbidden = [known.encode("cats")]
    return [Request(place, known.encode(text), options, (), forbidden) for place, text in enumerate(texts)]


def compare(slow: TorchEngine, fast: CTranslate2Engine, asked: list[Request]) -> int:
    """Check that both say the same wherever the fast one answers; return how many answers that were.

    Of hypotheses that the maximum length cut off, beam search ranks each its own way.
    """
    assert all(request_rejection(request) is None for request in asked)
    answered = 0
    for mine, theirs in zip(slow.translate(asked), fast.translate(asked), strict=True):
        if not theirs or (asked[0].options.width > 1 and not all(one.ended for one in theirs)):
            continue
        assert [answer.tokens for answer in mine] == [answer.tokens for answer in theirs]
        for one, other in zip(mine, theirs, strict=True):
            assert one.score == pytest.approx(other.score, abs=2e-4)
            assert one.ended == other.ended
            answered += 1
    return answered


@pytest.mark.parametrize("name", CONFIGS)
def test_both_engines_say_the_same(name: str) -> None:
    slow, fast = engines(folder(CONFIGS[name]))
    assert compare(slow, fast, requests(method="greedy", max_extra=20)) >= 3
    assert compare(slow, fast, requests(beam_size=5, n_best=3, length_penalty=1.0, max_extra=20)) >= 9
    assert compare(slow, fast, requests(beam_size=3, length_penalty=0.0, max_extra=20)) >= 3


@pytest.mark.parametrize(
    "given", [{"min_length": 5}, {"no_repeat_ngram_size": 2}, {"repetition_penalty": 1.2}, {"max_length": 9}]
)
def test_options_mean_the_same_to_both(given: dict[str, float]) -> None:
    slow, fast = engines(folder(BASE))
    assert compare(slow, fast, requests(method="greedy", max_extra=20, **given)) >= 3
    assert compare(slow, fast, requests(beam_size=4, length_penalty=1.0, max_extra=20, **given)) >= 3


def log_probability(model: Transformer, source: list[int], tokens: list[int]) -> float:
    """Of tokens, without an end token."""
    known = tokenizer("bpe")
    source_1S = torch.tensor([[*source, known.end]])
    with torch.inference_mode():
        memory = model.encode(source_1S, torch.ones_like(source_1S, dtype=torch.bool))
        score_TV = model.logits(model(torch.tensor([[known.start, *tokens[:-1]]]), memory)[0]).log_softmax(dim=-1)
    return float(score_TV[range(len(tokens)), tokens].sum())


@pytest.mark.parametrize("given", [{"method": "greedy"}, {"beam_size": 4, "length_penalty": 1.0, "n_best": 3}])
def test_what_the_maximum_length_cuts_off_is_kept_and_does_not_depend_on_the_batch(given: dict[str, object]) -> None:
    """Sources of different lengths have different maxima; one that would end later is cut at its own."""
    contents = folder(CONFIGS["gated"])
    model, (_, fast) = contents.transducer, engines(contents)
    assert isinstance(model, Transformer)
    asked = requests(max_extra=1, **given)
    found, cut = fast.translate(asked), 0
    for request, together in zip(asked, found, strict=True):
        (alone,) = fast.translate([request])
        assert [one.tokens for one in together] == [one.tokens for one in alone]
        assert [one.ended for one in together] == [one.ended for one in alone]
        assert [one.score for one in together] == pytest.approx([one.score for one in alone], abs=2e-4)
        for one in together:
            assert len(one.tokens) <= request.max_total_length
            assert one.ended == (len(one.tokens) < request.max_total_length)
            if not one.ended:
                cut += 1
                assert one.log_probability == pytest.approx(
                    log_probability(model, list(request.source), one.tokens), abs=1e-3
                )
    assert cut >= 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"length_normalization": "gnmt"}, "no length normalization 'gnmt'"),
        ({"stop_rule": "exact"}, "no stop rule 'exact'"),
        ({"method": "sample"}, "samples"),
        ({"presence_penalty": 1.0}, "no presence"),
        ({"max_length": 4096}, "was given 4,096 positions"),
    ],
)
def test_what_it_would_do_in_another_way_is_rejected(given: dict[str, object], message: str) -> None:
    (reason, *_) = [request_rejection(request) for request in requests(**given)]
    assert reason is not None
    assert message in reason


def test_models_that_it_cannot_express_are_rejected(tmp_path: Path) -> None:
    recurrent = Rnn(RnnConfig(embedding_dim=7, hidden_dim=13), VocabularySizes(11, 11))
    assert "not Rnn" in str(model_rejection(recurrent))
    contents = folder(BASE.but(key_dim=13, value_dim=11))
    with pytest.raises(SettingsError, match="keys and values of one width, not 13 and 11"):
        export(contents, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_a_smaller_export_says_nearly_the_same(tmp_path: Path) -> None:
    contents = folder(BASE.but(model_dim=64, ffn_dim=64))
    export(contents, tmp_path / "full")
    export(contents, tmp_path / "small", "int8")
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("full", "small")]
    assert sizes[1] < 0.8 * sizes[0]  # the table of positions is not quantised
    assert ctranslate2.Translator(str(tmp_path / "small"), device="cpu").compute_type.startswith("int8")


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16"])
def test_an_export_leaves_the_model_as_it_was(quantization: str, tmp_path: Path) -> None:
    contents = folder(TransformerConfig(model_dim=16, num_heads=2, ffn_dim=32, num_layers=1))
    before = {name: weight.clone() for name, weight in contents.model.state_dict().items()}
    export(contents, tmp_path / "exported", quantization)  # type: ignore[arg-type]
    for name, weight in contents.model.state_dict().items():
        assert torch.equal(weight, before[name]), name
