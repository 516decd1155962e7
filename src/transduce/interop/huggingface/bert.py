"""Hugging Face's BERT, bare or with one of its heads.

In files of the bare model, weight names may or may not start with `bert.`. We store query, key and value of a layer in
one matrix, `transformers` in three.
"""

from __future__ import annotations

from transduce.config import Table
from transduce.errors import ModelFolderError, brief
from transduce.interop.huggingface.architecture import Architecture, Settings, WeightMapping, Weights, activation_name
from transduce.models.bert import BertConfig
from transduce.models.interface import VocabularySizes

HEADS = {
    "BertModel": "none",
    "BertForPreTraining": "language",
    "BertForMaskedLM": "language",
    "BertForSequenceClassification": "labels",
    "BertForTokenClassification": "tags",
    "BertForQuestionAnswering": "span",
}
"""Classes in `transformers` -> our heads."""

HEAD_ACTIVATIONS = ("gelu",)
"""Activations possible with a language-model head: theirs uses the encoder's activation there, ours always GELU."""

LINEAR = ("weight", "bias")
OUTPUT = {"labels": "classifier", "tags": "classifier", "span": "qa_outputs"}


def _read(settings: Settings, weights: Weights) -> BertConfig:
    settings.require("position_embedding_type", "absolute")
    settings.require("is_decoder", False)
    architectures = settings.table.get("architectures") or ["BertModel"]
    name = architectures[0] if isinstance(architectures, list) else None
    if not isinstance(name, str) or name not in HEADS:
        raise ModelFolderError(
            f"{settings.where}: architectures = {brief(architectures)} is not supported; supported: {', '.join(HEADS)}"
        )
    head, dropout = HEADS[name], settings.number("hidden_dropout_prob", 0.1)
    if head == "language":
        settings.require("hidden_act", *HEAD_ACTIVATIONS)
    labels = settings.table.get("id2label")
    if head == "labels":  # single-label classification only, neither regression nor several labels at once
        settings.require("problem_type", None, "single_label_classification")
        if isinstance(labels, dict) and len(labels) == 1:
            raise ModelFolderError(f"{settings.where}: a single label means regression, which is not supported")
    return BertConfig.from_table(
        {
            "model_dim": settings.integer("hidden_size"),
            "num_heads": settings.integer("num_attention_heads"),
            "ffn_dim": settings.integer("intermediate_size"),
            "num_layers": settings.integer("num_hidden_layers"),
            "norm_eps": settings.number("layer_norm_eps", 1e-12),
            "activation": settings.activation("hidden_act", "gelu"),
            "max_positions": settings.integer("max_position_embeddings"),
            "segments": settings.integer("type_vocab_size", 2),
            "head": head,
            "next_sentence": head != "language" or "cls.seq_relationship.weight" in weights.names,
            "num_labels": max(1, len(labels)) if isinstance(labels, dict) and head in ("labels", "tags") else 2,
            "dropout": dropout,
            "attention_dropout": settings.number("attention_probs_dropout_prob", 0.1),
            "head_dropout": dropout,
        },
        settings.where,
    )


def _write(config: BertConfig, sizes: VocabularySizes) -> Table:
    name = next(name for name, head in HEADS.items() if head == config.head)
    if config.head == "language" and not config.next_sentence:
        name = "BertForMaskedLM"
    labels = range(config.num_labels if config.head in ("labels", "tags") else 0)
    return {
        "model_type": "bert",
        "architectures": [name],
        **({"id2label": {str(number): f"LABEL_{number}" for number in labels}} if labels else {}),
        "vocab_size": sizes.source,
        "hidden_size": config.model_dim,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.ffn_dim,
        "num_hidden_layers": config.num_layers,
        "layer_norm_eps": config.norm_eps,
        "hidden_act": activation_name(config.activation),
        "max_position_embeddings": config.max_positions,
        "type_vocab_size": config.segments,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
    }


def _weight_map(config: BertConfig) -> list[WeightMapping]:
    embeddings = "bert.embeddings.{0}|embeddings.{0}"
    found = [
        WeightMapping("embedding.tokens.weight", (_pieces(config, embeddings.format("word_embeddings.weight")),)),
        WeightMapping("embedding.positions.weight", (embeddings.format("position_embeddings.weight"),)),
        WeightMapping("embedding.segments.weight", (embeddings.format("token_type_embeddings.weight"),)),
    ]
    pairs = [("embedding.norm", "embeddings.LayerNorm")]
    if config.is_pooled:
        pairs.append(("pooler", "pooler.dense"))
    for layer in range(config.num_layers):
        ours, theirs = f"encoder.{layer}", f"encoder.layer.{layer}"
        own = f"{theirs}.attention.self"
        found += [
            WeightMapping(
                f"{ours}.self_attention.qkv_proj.{kind}",
                tuple(f"bert.{own}.{part}.{kind}|{own}.{part}.{kind}" for part in ("query", "key", "value")),
            )
            for kind in LINEAR
        ]
        pairs += [
            (f"{ours}.self_attention.out_proj", f"{theirs}.attention.output.dense"),
            (f"{ours}.self_attention_residual.norm", f"{theirs}.attention.output.LayerNorm"),
            (f"{ours}.feed_forward.up", f"{theirs}.intermediate.dense"),
            (f"{ours}.feed_forward.down", f"{theirs}.output.dense"),
            (f"{ours}.feed_forward_residual.norm", f"{theirs}.output.LayerNorm"),
        ]
    found += [
        WeightMapping(f"{ours}.{kind}", (f"bert.{name}.{kind}|{name}.{kind}",))
        for ours, name in pairs
        for kind in LINEAR
    ]
    return found + _head(config)


def _pieces(config: BertConfig, names: str) -> str:
    return f"{names}|cls.predictions.decoder.weight" if config.head == "language" else names


def _head(config: BertConfig) -> list[WeightMapping]:
    """Weights of the head; the output of a language-model head is tied to the embedding."""
    if config.head == "none":
        return []
    pairs = [("head.output", OUTPUT[config.head])] if config.head in OUTPUT else []
    found = []
    if config.head == "language":
        pairs += [("head.transform", "cls.predictions.transform.dense")]
        pairs += [("head.norm", "cls.predictions.transform.LayerNorm")]
        pairs += [("head.next_sentence", "cls.seq_relationship")] if config.next_sentence else []
        found = [WeightMapping("head.output.bias", ("cls.predictions.bias|cls.predictions.decoder.bias",))]
    return found + [WeightMapping(f"{ours}.{kind}", (f"{theirs}.{kind}",)) for ours, theirs in pairs for kind in LINEAR]


BERT = Architecture(
    class_name="BertModel",
    read=_read,
    write=_write,
    weight_map=_weight_map,
    ignored=("*embeddings.position_ids", "*pooler.dense.*"),  # token-level heads do not use the pooled vector
)
