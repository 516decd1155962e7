"""The table of models with their settings and presets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from transduce.config import Config
from transduce.errors import SettingsError, suggestion
from transduce.models import bert, gpt, recurrent_lm, rnn, t5, transformer, universal
from transduce.models.ancestors import (
    bytenet,
    captioner,
    conv_seq2seq,
    extended_neural_gpu,
    memory_network,
    neural_gpu,
    turing_machine,
)
from transduce.models.interface import EncoderModel, LanguageModel, Model, VocabularySizes
from transduce.nn.initialization import initialize


@dataclass(frozen=True)
class Entry:
    """A model: its class, its settings, and its presets by name. A published preset never changes."""

    model: type[Model]
    config: type[Config]
    presets: Mapping[str, Callable[[], Config]]


def _presets(*made: Callable[[], Config]) -> dict[str, Callable[[], Config]]:
    """Presets by name: a preset is a function of that name."""
    return {preset.__name__: preset for preset in made}


MODELS: dict[str, Entry] = {
    "transformer": Entry(
        transformer.Transformer,
        transformer.TransformerConfig,
        _presets(
            transformer.paper_base,
            transformer.paper_big,
            transformer.small,
            transformer.tiny,
            transformer.student_6_2,
            transformer.student_12_1,
        ),
    ),
    "rnn": Entry(rnn.Rnn, rnn.RnnConfig, _presets(rnn.sutskever, rnn.cho, rnn.bahdanau, rnn.luong)),
    "conv_seq2seq": Entry(
        conv_seq2seq.ConvSeq2Seq,
        conv_seq2seq.ConvSeq2SeqConfig,
        _presets(conv_seq2seq.conv_paper, conv_seq2seq.conv_ladder, conv_seq2seq.conv_small),
    ),
    "bytenet": Entry(bytenet.ByteNet, bytenet.ByteNetConfig, _presets(bytenet.bytenet_paper, bytenet.bytenet_small)),
    "neural_gpu": Entry(neural_gpu.NeuralGpu, neural_gpu.NeuralGpuConfig, _presets(neural_gpu.neural_gpu)),
    "extended_neural_gpu": Entry(
        extended_neural_gpu.ExtendedNeuralGpu,
        extended_neural_gpu.ExtendedNeuralGpuConfig,
        _presets(extended_neural_gpu.extended_neural_gpu, extended_neural_gpu.extended_neural_gpu_small),
    ),
    "gpt": Entry(gpt.Gpt, gpt.GptConfig, _presets(gpt.gpt2, gpt.gpt2_medium, gpt.gpt_mini, gpt.llama_mini)),
    "recurrent_lm": Entry(
        recurrent_lm.RecurrentLm,
        recurrent_lm.RecurrentLmConfig,
        _presets(
            recurrent_lm.mikolov,
            recurrent_lm.zaremba_medium,
            recurrent_lm.zaremba_large,
            recurrent_lm.lstm_mini,
            recurrent_lm.gru_mini,
        ),
    ),
    "t5": Entry(transformer.Transformer, t5.T5Config, _presets(t5.t5_small, t5.t5_base, t5.t5_v1_1_small, t5.t5_mini)),
    "universal": Entry(
        universal.Universal, universal.UniversalConfig, _presets(universal.universal_base, universal.universal_mini)
    ),
    "universal_encoder": Entry(
        universal.UniversalEncoder, universal.UniversalEncoderConfig, _presets(universal.universal_encoder)
    ),
    "bert": Entry(bert.Bert, bert.BertConfig, _presets(bert.bert_base, bert.bert_large, bert.bert_mini)),
    "memory_network": Entry(
        memory_network.MemoryNetwork,
        memory_network.MemoryNetworkConfig,
        _presets(memory_network.memn2n, memory_network.memn2n_layerwise),
    ),
    "turing_machine": Entry(
        turing_machine.TuringMachine,
        turing_machine.TuringMachineConfig,
        _presets(turing_machine.ntm_lstm, turing_machine.ntm_feed_forward, turing_machine.lstm_alone),
    ),
    "captioner": Entry(
        captioner.Captioner, captioner.CaptionerConfig, _presets(captioner.captioner_paper, captioner.captioner_small)
    ),
}


def entry(name: str) -> Entry:
    """Return a model's entry by name."""
    if name not in MODELS:
        raise SettingsError(f"unknown model '{name}'{suggestion(name, MODELS)}")
    return MODELS[name]


def name_of(config: Config) -> str:
    """Return the name of the model that these settings belong to."""
    return next(name for name, known in MODELS.items() if type(config) is known.config)


def is_language_model(config: Config) -> bool:
    """Whether these settings belong to a language model."""
    return issubclass(entry(name_of(config)).model, LanguageModel)


def is_text_encoder(config: Config) -> bool:
    """Whether these settings belong to an encoder model."""
    return issubclass(entry(name_of(config)).model, EncoderModel)


def task_of(config: Config) -> str:
    """Return the task of the model that these settings belong to: a model folder states it, and `load` goes by it."""
    if is_text_encoder(config):
        return "text_encoding"
    return "language_modeling" if is_language_model(config) else "translation"


def accepts_context(config: Config) -> bool:
    """Whether the model takes any number of texts: context facts, then a question."""
    model = entry(name_of(config)).model
    return issubclass(model, EncoderModel) and model.max_texts is None


def labels_are_words(config: Config) -> bool:
    """Whether labels share the embedding of the word that they are, so that the data must name it."""
    return isinstance(config, memory_network.MemoryNetworkConfig) and config.tying == "adjacent"


def preset(name: str) -> tuple[str, Config]:
    """Return (model name, settings) of a preset."""
    known = {preset: model for model, entry in MODELS.items() for preset in entry.presets}
    if name not in known:
        raise SettingsError(f"unknown preset '{name}'{suggestion(name, known)}")
    return known[name], MODELS[known[name]].presets[name]()


def read_model_table(table: Mapping[str, Any], where: str) -> Config:
    """Parse a recipe's [model] table: `name` or `preset` chooses the model, the other settings change it."""
    settings = dict(table)
    name, wanted = settings.pop("name", None), settings.pop("preset", None)
    base: dict[str, Any] = {}
    if wanted is not None:
        model, config = preset(str(wanted))
        if name not in (None, model):
            raise SettingsError(f"{where}: preset '{wanted}' is a {model}, not a {name}; leave out one of the two")
        name, base = model, config.model_dump()
    return entry(str(name or "transformer")).config.from_table({**base, **settings}, where)


def build(config: Config, sizes: VocabularySizes, seed: int | None = None) -> Model:
    """Build a model from its settings; with a seed its weights are initialised, otherwise they are to be loaded."""
    tied = getattr(config, "tied_embeddings", None)
    if tied in transformer.SHARED and sizes.source != sizes.target:
        raise SettingsError(
            f"tied_embeddings = '{tied}' needs one vocabulary for both sides, but they have {sizes.source:,} and "
            f"{sizes.target:,} tokens; set tokenizer.joint = true or model.tied_embeddings = 'target'"
        )
    with torch.random.fork_rng(devices=[]):  # torch's own initialisation is overwritten; keep its generator
        model = entry(name_of(config)).model(config, sizes)
    if seed is not None:
        initialize(model, seed, getattr(config, "embedding_init", "normal"))
    return model
