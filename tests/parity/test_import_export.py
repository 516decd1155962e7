"""Whole folders: imported they say what `transformers` says, exported they are loaded there and say the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import transduce
from tests.unit.interop.huggingface import folders
from transduce.config import Config
from transduce.errors import ModelFolderError, SettingsError
from transduce.inference.encoder_engine import LabelPrediction
from transduce.inference.generator import Generator
from transduce.inference.text_encoder import TextEncoder
from transduce.inference.translator import Translator
from transduce.interop.export_model import choose_architecture, export
from transduce.interop.import_model import import_model
from transduce.model_folder import ModelFolder, load_model, save_model
from transduce.models.bert import BertConfig
from transduce.models.catalog import build
from transduce.models.gpt import gpt_mini, llama_mini
from transduce.models.interface import Model, VocabularySizes
from transduce.models.rnn import RnnConfig
from transduce.models.t5 import t5_mini
from transduce.models.transformer import TransformerConfig
from transduce.storage.layout import WEIGHTS
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_encoder_tokenizer, train_tokenizer

TEXTS = ["The quick brown fox", "don't you", "two words (and more)"]
SIDES: dict[str, Any] = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 64,
    "scale_embedding": True,
}


def model_of(folder: Path, **settings: Any) -> Any:
    """A model of `transformers` for the tokenizer in a folder, random weights, saved beside it."""
    message = json.loads((folder / "config.json").read_text())
    kind = {"marian": "MarianMT", "m2m_100": "M2M100", "t5": "T5", "gpt2": "GPT2", "llama": "Llama", "bert": "Bert"}
    config = transformers.AutoConfig.for_model(**{**message, **settings})
    ending = {"marian": "Model", "m2m_100": "ForConditionalGeneration", "t5": "ForConditionalGeneration"}
    ending |= {"gpt2": "LMHeadModel", "llama": "ForCausalLM", "bert": "Model"}
    model = getattr(transformers, kind[message["model_type"]] + ending[message["model_type"]])(config).eval()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(3)
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.copy_(torch.randn(parameter.shape) * 0.3 + ("norm" in name.lower() or ".ln_" in name))
    model.generation_config = transformers.GenerationConfig.from_model_config(config)
    model.save_pretrained(folder)
    return model


def said_by_transformers(model: Any, tokenizer: Any, text: str, **options: Any) -> str:
    read = tokenizer(text, return_tensors="pt")
    config = model.config
    framing = {config.pad_token_id, getattr(config, "decoder_start_token_id", None)} - {None, config.eos_token_id}
    never = [[token] for token in framing] or None
    found = model.generate(
        read.input_ids,
        attention_mask=read.attention_mask,
        do_sample=False,
        num_beams=1,
        max_new_tokens=12,
        bad_words_ids=never,
        **options,
    )[0]
    return str(tokenizer.decode(found, skip_special_tokens=True))


@pytest.mark.parametrize(
    ("make", "settings", "tokenizer"),
    [
        (folders.marian, {**SIDES, "activation_function": "swish"}, "MarianTokenizer"),
        (folders.t5_library, {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}, "AutoTokenizer"),
    ],
    ids=["marian", "t5"],
)
def test_a_translator_says_what_theirs_says_and_comes_back(
    make: Callable[[Path], Path], settings: dict[str, Any], tokenizer: str, tmp_path: Path
) -> None:
    folder = make(tmp_path / "theirs")
    theirs = model_of(folder, **settings)
    known = getattr(transformers, tokenizer).from_pretrained(folder)
    import_model(folder, tmp_path / "ours")
    ours = transduce.load(tmp_path / "ours")
    assert isinstance(ours, Translator)
    expected = [said_by_transformers(theirs, known, text) for text in TEXTS]
    assert ours.translate(TEXTS, method="greedy", max_length=12, split=False) == expected
    export(load_model(tmp_path / "ours"), tmp_path / "back")
    again = type(theirs).from_pretrained(tmp_path / "back")
    assert _same_weights(again, theirs)
    assert [said_by_transformers(again, known, text) for text in TEXTS] == expected


def test_an_exported_translator_writes_as_far_as_ours(tmp_path: Path) -> None:
    """Told nothing, `transformers` stops after 20 tokens."""
    folder = folders.marian(tmp_path / "theirs")
    model_of(folder, **SIDES, activation_function="swish")
    import_model(folder, tmp_path / "ours")
    contents = load_model(tmp_path / "ours")
    contents.notes.pop("search", None)
    export(contents, tmp_path / "back")
    again = transformers.MarianMTModel.from_pretrained(tmp_path / "back")
    known = transformers.MarianTokenizer.from_pretrained(folder)
    read = known(TEXTS[0], return_tensors="pt")
    again.generation_config.eos_token_id = None  # it would go on for ever
    found = again.generate(read.input_ids, attention_mask=read.attention_mask, bad_words_ids=[[0]])
    assert found.shape[1] == 64


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (folders.gpt2, {"n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 64}),
        (
            folders.smollm,
            {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
            | {"num_key_value_heads": 2},
        ),
    ],
    ids=["gpt2", "llama"],
)
def test_a_language_model_goes_on_as_theirs_and_comes_back(
    make: Callable[[Path], Path], settings: dict[str, Any], tmp_path: Path
) -> None:
    folder = make(tmp_path / "theirs")
    theirs = model_of(folder, **settings)
    known = transformers.AutoTokenizer.from_pretrained(folder)
    import_model(folder, tmp_path / "ours")
    ours = transduce.load(tmp_path / "ours")
    assert isinstance(ours, Generator)
    expected = [said_by_transformers(theirs, known, text) for text in TEXTS]
    found = ours.generate(TEXTS, method="greedy", max_length=12)
    assert [text + more for text, more in zip(TEXTS, found, strict=True)] == expected
    export(load_model(tmp_path / "ours"), tmp_path / "back")
    again = type(theirs).from_pretrained(tmp_path / "back")
    assert _same_weights(again, theirs)


def test_a_text_encoder_gives_their_vectors_and_comes_back(tmp_path: Path) -> None:
    folder = folders.bert(tmp_path / "theirs")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    theirs = model_of(folder, **sizes, max_position_embeddings=64)
    known = transformers.AutoTokenizer.from_pretrained(folder)
    import_model(folder, tmp_path / "ours")
    ours = transduce.load(tmp_path / "ours")
    assert isinstance(ours, TextEncoder)
    read = known(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = theirs(**read).last_hidden_state
    real = read.attention_mask[:, :, None]
    expected = (states * real).sum(1) / real.sum(1)
    np.testing.assert_allclose(ours.embed(TEXTS), expected.numpy(), rtol=0, atol=1e-5)
    export(load_model(tmp_path / "ours"), tmp_path / "back")
    assert _same_weights(transformers.BertModel.from_pretrained(tmp_path / "back"), theirs)


def _same_weights(found: Any, expected: Any) -> bool:
    mine, theirs = found.state_dict(), expected.state_dict()
    return mine.keys() == theirs.keys() and all(
        torch.equal(mine[name], weight) for name, weight in theirs.items() if "embed_positions" not in name
    )


OURS = {
    "the paper's": (TransformerConfig(model_dim=16, num_heads=2, ffn_dim=24, num_layers=2), "MarianMTModel"),
    "pre-norm, learned": (
        TransformerConfig(
            model_dim=16, num_heads=2, ffn_dim=24, num_layers=2, norm="pre", positions="learned", max_positions=64
        ),
        "PegasusForConditionalGeneration",
    ),
    "t5": (t5_mini().but(model_dim=16, num_heads=2, ffn_dim=24, num_layers=2), "T5ForConditionalGeneration"),
}


def _drawn(config: Config, size: int) -> Model:
    """A model with opinions."""
    model = build(config, VocabularySizes(size, size), seed=2).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    return model


@pytest.mark.parametrize("name", OURS)
def test_what_was_trained_here_translates_the_same_there(name: str, tmp_path: Path) -> None:
    config, architecture = OURS[name]
    tokenizer = train_tokenizer("bpe", [*TEXTS] * 3, TokenizerConfig(vocab_size=300))
    model = _drawn(config, tokenizer.size)
    contents = ModelFolder(model, config, tokenizer, tokenizer, {"search": {"method": "greedy", "max_length": 12}})
    save_model(tmp_path / "ours", contents, "a card")
    export(contents, tmp_path / "theirs")
    theirs = getattr(transformers, architecture).from_pretrained(tmp_path / "theirs").eval()
    known = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    ours = transduce.load(tmp_path / "ours")
    assert isinstance(ours, Translator)
    found = ours.translate(TEXTS, split=False)
    assert found == [said_by_transformers(theirs, known, text) for text in TEXTS]
    assert len(set(found)) > 1


@pytest.mark.parametrize("prompt_start", ["end", "start", "nothing"])
def test_what_was_trained_here_goes_on_the_same_there_and_comes_back(prompt_start: str, tmp_path: Path) -> None:
    notes = {"search": {"method": "greedy", "max_length": 12}, "prompt_start": prompt_start}
    tokenizer = train_tokenizer("bpe", [*TEXTS] * 3, TokenizerConfig(vocab_size=300))
    config = gpt_mini().but(model_dim=16, num_heads=2, ffn_dim=24, num_layers=2, max_positions=64)
    contents = ModelFolder(_drawn(config, tokenizer.size), config, tokenizer, tokenizer, notes)
    save_model(tmp_path / "ours", contents, "a card")
    export(contents, tmp_path / "theirs")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "theirs").eval()
    known = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "back")
    ours, back = (transduce.load(tmp_path / name) for name in ("ours", "back"))
    assert isinstance(ours, Generator) and isinstance(back, Generator)
    expected = [said_by_transformers(theirs, known, text) for text in TEXTS]
    for one in (ours, back):
        assert [
            text + answer[0].text for text, answer in zip(TEXTS, one.generate(TEXTS, n_best=1), strict=True)
        ] == expected
    assert len(set(expected)) > 1


def test_a_text_encoder_trained_here_predicts_the_same_there_and_comes_back(tmp_path: Path) -> None:
    config = TokenizerConfig(kind="wordpiece", vocab_size=120, min_frequency=1)
    tokenizer = train_encoder_tokenizer(config, [*TEXTS] * 3)
    settings = BertConfig(
        model_dim=16, num_heads=2, ffn_dim=24, num_layers=2, max_positions=64, head="labels", num_labels=3
    )
    model = _drawn(settings, tokenizer.size)
    contents = ModelFolder(model, settings, tokenizer, tokenizer, {"labels": ["one", "two", "three"]})
    export(contents, tmp_path / "theirs")
    theirs = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "theirs").eval()
    known = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "back")
    back = transduce.load(tmp_path / "back")
    assert isinstance(back, TextEncoder)
    asked: list[tuple[str, ...]] = [(TEXTS[0],), (TEXTS[1],), (TEXTS[0], TEXTS[2])]
    for texts in asked:
        with torch.no_grad():
            chance = theirs(**known(*texts, return_tensors="pt")).logits.softmax(dim=-1).max()
        for one in (TextEncoder(contents), back):
            (message,) = one.predict([list(texts)])
            assert isinstance(message, LabelPrediction)
            assert message.probability == pytest.approx(float(chance), abs=1e-6)


def test_the_encoding_of_a_text_encoder_comes_back_and_nonsense_does_not(tmp_path: Path) -> None:
    tokenizer = train_encoder_tokenizer(TokenizerConfig(kind="wordpiece", vocab_size=120, min_frequency=1), TEXTS * 3)
    settings = BertConfig(model_dim=16, num_heads=2, ffn_dim=24, num_layers=1, max_positions=64, head="span")
    habits = {"max_length": 40, "stride": 7, "allow_no_answer": True}
    contents = ModelFolder(_drawn(settings, tokenizer.size), settings, tokenizer, tokenizer, {**habits})
    export(contents, tmp_path / "theirs")
    transformers.BertForQuestionAnswering.from_pretrained(tmp_path / "theirs")
    notes = import_model(tmp_path / "theirs", tmp_path / "back").notes
    assert {name: notes[name] for name in habits} == habits
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"transduce": {"max_length": "x", "stride": -1}}))
    assert not habits.keys() & import_model(tmp_path / "theirs", tmp_path / "again").notes.keys()


def test_what_no_architecture_of_theirs_has_is_rejected() -> None:
    for config, message in (
        (TransformerConfig(activation="swiglu"), "activation = swiglu"),
        (TransformerConfig(norm="pre", positions="rotary", model_dim=16, num_heads=2), "positions = rotary"),
        (llama_mini().but(positions="alibi"), "positions = alibi"),
        (gpt_mini().but(norm="post"), "norm = post"),
        (RnnConfig(), "rnn"),
    ):
        with pytest.raises(SettingsError, match=message):
            choose_architecture(config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "model_type = 'mamba' cannot be imported"),
        ({"n_embd": "wide"}, "n_embd must be an integer"),
        ({"n_embd": 8}, "has shape"),
        ({"n_layer": 1}, "unexpected weight"),
        ({"n_layer": 3}, "missing weight"),
        ({"activation_function": "mish"}, "activation_function = 'mish'"),
        ({"activation_function": ["gelu"]}, "activation_function = "),
        ({"layer_norm_epsilon": 10**400}, "layer_norm_epsilon must be a number, not 1000"),
        ({"layer_norm_epsilon": float("nan")}, "norm_eps = nan"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True"),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_are_rejected_by_name_and_nothing_is_written(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = folders.gpt2(tmp_path / "theirs")
    model_of(folder, n_embd=16, n_head=2, n_layer=2, n_positions=64)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(ModelFolderError, match=message):
        import_model(folder, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": [["BertModel"]]}, "architectures = "),
        ({"id2label": {"no": "x", "yes": "y"}}, "id2label must number its labels"),
        ({"id2label": {"0": "x", "7": "y"}}, "id2label must number its labels"),
    ],
    ids=str,
)
def test_a_text_encoders_settings_that_make_no_sense_are_rejected(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = folders.bert(tmp_path / "theirs")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    theirs = model_of(folder, **sizes, max_position_embeddings=64)
    weights = {f"bert.{name}": weight for name, weight in theirs.state_dict().items()}
    save_file(weights | {"classifier.weight": torch.ones(2, 16), "classifier.bias": torch.ones(2)}, folder / WEIGHTS)
    config = {**json.loads((folder / "config.json").read_text()), "architectures": ["BertForSequenceClassification"]}
    (folder / "config.json").write_text(json.dumps({**config, "id2label": {"0": "x", "1": "y"}}))
    import_model(folder, tmp_path / "good")
    (folder / "config.json").write_text(json.dumps({**config, "id2label": {"0": "x", "1": "y"}, **change}))
    with pytest.raises(ModelFolderError, match=message):
        import_model(folder, tmp_path / "ours")


QUERY, KEY = "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight"


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.embed_tokens.weight", ()),
        ("model.embed_tokens.weight", (7,)),
        ("model.embed_tokens.weight", (1, 7, 16)),
        (QUERY, ()),
        (QUERY, (16,)),
        (QUERY, (1, 16, 16)),
        (KEY, (16, 8)),
        ("model.layers.0.input_layernorm.weight", ()),
        ("model.layers.0.input_layernorm.weight", (1, 1, 16)),
    ],
    ids=str,
)
def test_weights_of_any_shape_but_the_right_one_are_rejected(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    folder = _small_llama(tmp_path)
    weights = load_file(folder / WEIGHTS)
    save_file({**weights, name: torch.ones(shape)}, folder / WEIGHTS)
    with pytest.raises(ModelFolderError, match=f"the weight '{name}' has shape") as refused:
        import_model(folder, tmp_path / "ours")
    assert "\n" not in str(refused.value) and not (tmp_path / "ours").exists()


def test_parts_of_wrong_sizes_are_rejected_though_they_add_up(tmp_path: Path) -> None:
    """Queries of two heads and keys of one have together as many rows as queries of one and keys of two."""
    folder = _small_llama(tmp_path)
    weights = load_file(folder / WEIGHTS)
    save_file({**weights, QUERY: weights[KEY], KEY: weights[QUERY]}, folder / WEIGHTS)
    with pytest.raises(ModelFolderError, match=r"'model.layers.0.self_attn.q_proj.weight' has shape"):
        import_model(folder, tmp_path / "ours")


def test_rotary_positions_that_are_no_table_are_rejected(tmp_path: Path) -> None:
    folder = _small_llama(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rope_parameters": "default"}))
    with pytest.raises(ModelFolderError, match="rope_scaling"):
        import_model(folder, tmp_path / "ours")


def _small_llama(place: Path) -> Path:
    folder = folders.llama2(place / "theirs")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    model_of(folder, **sizes, intermediate_size=24, max_position_embeddings=64, pad_token_id=None)
    return folder


def test_an_export_holds_every_weight_once(tmp_path: Path) -> None:
    folder = folders.gpt2(tmp_path / "theirs")
    model_of(folder, n_embd=16, n_head=2, n_layer=1, n_positions=64)
    contents = import_model(folder, tmp_path / "ours")
    export(contents, tmp_path / "back")
    assert load_file(tmp_path / "back" / "model.safetensors").keys() == load_file(folder / "model.safetensors").keys()
