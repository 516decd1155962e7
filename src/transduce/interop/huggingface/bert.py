"""BERT of Hugging Face's, bare or under one of its heads.

Files of the bare model may name its weights with `bert.` before them or without. Ours keep query, key and value of a
layer in one matrix; theirs are three.
"""

from __future__ import annotations

from transduce.config import Table
from transduce.errors import ModelFolderError, brief
from transduce.interop.huggingface.family import Family, Settings, bend_name
from transduce.interop.huggingface.rename import Rename, Weights
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
"""Their classes, and our heads."""

HEAD_BENDS = ("gelu",)
"""What may bend the feed-forward network under a language head: theirs bends the head in the same way, ours by GELU."""

LINEAR = ("weight", "bias")
OUTPUT = {"labels": "classifier", "tags": "classifier", "span": "qa_outputs"}


def _read(settings: Settings, weights: Weights) -> BertConfig:
    settings.refuse_unless("position_embedding_type", "absolute")
    settings.refuse_unless("is_decoder", False)
    said = settings.table.get("architectures") or ["BertModel"]
    name = said[0] if isinstance(said, list) else None
    if not isinstance(name, str) or name not in HEADS:
        raise ModelFolderError(f"{settings.where}: architectures = {brief(said)} is not known; {', '.join(HEADS)} are")
    head, dropout = HEADS[name], settings.share("hidden_dropout_prob", 0.1)
    if head == "language":
        settings.refuse_unless("hidden_act", *HEAD_BENDS)
    labels = settings.table.get("id2label")
    if head == "labels":  # one of several labels is said; a number, or several labels at once, are something else
        settings.refuse_unless("problem_type", None, "single_label_classification")
        if isinstance(labels, dict) and len(labels) == 1:
            raise ModelFolderError(f"{settings.where}: one label alone is a number that is estimated; that is not read")
    return BertConfig.from_table(
        {
            "model_dim": settings.number("hidden_size"),
            "num_heads": settings.number("num_attention_heads"),
            "ffn_dim": settings.number("intermediate_size"),
            "num_layers": settings.number("num_hidden_layers"),
            "norm_eps": settings.share("layer_norm_eps", 1e-12),
            "activation": settings.bend("hidden_act", "gelu"),
            "max_positions": settings.number("max_position_embeddings"),
            "segments": settings.number("type_vocab_size", 2),
            "head": head,
            "next_sentence": head != "language" or "cls.seq_relationship.weight" in weights.names,
            "num_labels": max(1, len(labels)) if isinstance(labels, dict) and head in ("labels", "tags") else 2,
            "dropout": dropout,
            "attention_dropout": settings.share("attention_probs_dropout_prob", 0.1),
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
        "hidden_act": bend_name(config.activation),
        "max_position_embeddings": config.max_positions,
        "type_vocab_size": config.segments,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
    }


def _renames(config: BertConfig) -> list[Rename]:
    embeddings = "bert.embeddings.{0}|embeddings.{0}"
    found = [
        Rename("embedding.tokens.weight", (_pieces(config, embeddings.format("word_embeddings.weight")),)),
        Rename("embedding.positions.weight", (embeddings.format("position_embeddings.weight"),)),
        Rename("embedding.segments.weight", (embeddings.format("token_type_embeddings.weight"),)),
    ]
    pairs = [("embedding.norm", "embeddings.LayerNorm")]
    if config.is_pooled:
        pairs.append(("pooler", "pooler.dense"))
    for layer in range(config.num_layers):
        ours, theirs = f"encoder.{layer}", f"encoder.layer.{layer}"
        own = f"{theirs}.attention.self"
        found += [
            Rename(
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
        Rename(f"{ours}.{kind}", (f"bert.{name}.{kind}|{name}.{kind}",)) for ours, name in pairs for kind in LINEAR
    ]
    return found + _head(config)


def _pieces(config: BertConfig, names: str) -> str:
    return f"{names}|cls.predictions.decoder.weight" if config.head == "language" else names


def _head(config: BertConfig) -> list[Rename]:
    """What stands on top; a language head's scores are made with the embedding's own matrix."""
    if config.head == "none":
        return []
    pairs = [("head.output", OUTPUT[config.head])] if config.head in OUTPUT else []
    found = []
    if config.head == "language":
        pairs += [("head.transform", "cls.predictions.transform.dense")]
        pairs += [("head.norm", "cls.predictions.transform.LayerNorm")]
        pairs += [("head.next_sentence", "cls.seq_relationship")] if config.next_sentence else []
        found = [Rename("head.output.bias", ("cls.predictions.bias|cls.predictions.decoder.bias",))]
    return found + [Rename(f"{ours}.{kind}", (f"{theirs}.{kind}",)) for ours, theirs in pairs for kind in LINEAR]


BERT = Family(
    architecture="BertModel",
    read=_read,
    write=_write,
    renames=_renames,
    ignored=("*embeddings.position_ids", "*pooler.dense.*"),  # heads over tokens do not read the pooled vector
)
