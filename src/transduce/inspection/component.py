"""Parts of a model that inspection names: attention heads, attention layers and feed-forward networks.

Layers and heads count from 1, as in the paper's figures. A kind of attention is named as in `AttentionMaps`; a
Universal Transformer, which has one block per side, has one layer of each kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import nn

from transduce.errors import SettingsError, brief, suggestion
from transduce.inspection.maps import Kind, zero_based
from transduce.models.interface import AnyTransducer
from transduce.nn.hook import hook_points

ATTENTION_NAMES = {
    "encoder": "encoder self-attention",
    "cross": "cross-attention",
    "decoder": "decoder self-attention",
    "causal": "self-attention",
}
"""What each kind of attention is called in texts."""
WITHOUT_HEADS = "this model has no attention heads; inspect one that has them, such as a transformer"


class HeadName(NamedTuple):
    """A head; layers and heads count from 1, as in the paper's figures."""

    kind: str
    """The kind of attention: encoder or decoder (their self-attention), cross, or causal in a language model."""
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{ATTENTION_NAMES[self.kind]} layer {self.layer} head {self.head}"


def attention_kind(path: str) -> Kind:
    """Return the kind of attention that a hook point belongs to, by its path; a language model has a decoder."""
    if "cross_attention" in path:
        return "cross"
    return "encoder" if path.startswith("encoder.") else "decoder"


def attention_paths(model: nn.Module, kind: str) -> list[str]:
    """Return the paths of all multi-head attention layers of one kind, the first layer first; they may be none."""
    wanted = "decoder" if kind == "causal" else kind
    paths = [path.rpartition(".")[0] for path in hook_points(model, ("head",))]
    return [path for path in paths if attention_kind(path) == wanted]


def attention_path(model: AnyTransducer, kind: str, layer: int) -> str:
    """Return the path of one multi-head attention layer."""
    kinds = [one for one in attention_kinds(model) if attention_paths(model, one)]
    if not kinds:
        raise SettingsError(WITHOUT_HEADS)
    if kind not in kinds:
        raise SettingsError(f"the model has no attention of the kind '{kind}'{suggestion(kind, kinds)}")
    paths = attention_paths(model, kind)
    return paths[zero_based("layer", layer, len(paths))]


def attention_kinds(model: AnyTransducer) -> tuple[Kind, ...]:
    """Return the kinds of attention that a model of this task may have."""
    return ("encoder", "decoder", "cross") if model.has_source else ("causal",)


def feed_forward_path(model: AnyTransducer, stack: str, layer: int) -> str:
    """Return the path of one feed-forward network; `stack` is encoder or decoder."""
    by_stack: dict[str, list[str]] = {}
    for point in hook_points(model, ("output",), "feed_forward"):
        by_stack.setdefault(point.partition(".")[0], []).append(point.rpartition(".")[0])
    if not by_stack:
        raise SettingsError("this model has no feed-forward networks; inspect one that has them, such as a transformer")
    if stack not in by_stack:
        raise SettingsError(
            f"no stack with feed-forward networks is named {brief(stack)}; choose from {', '.join(by_stack)}"
        )
    paths = by_stack[stack]
    return paths[zero_based("layer", layer, len(paths))]


def num_heads(model: nn.Module, path: str) -> int:
    """Return the number of heads of an attention layer."""
    attention: Any = model.get_submodule(path)
    count: int = attention.shape.num_heads
    return count


def all_heads(model: AnyTransducer) -> list[HeadName]:
    """Return every head of a model: by kind of attention, then by layer."""
    return [
        HeadName(kind, layer, head)
        for kind in attention_kinds(model)
        for layer, path in enumerate(attention_paths(model, kind), start=1)
        for head in range(1, num_heads(model, path) + 1)
    ]


def check_head(model: AnyTransducer, name: Sequence[Any]) -> tuple[str, int]:
    """Return the path of a head's attention layer and the index of the head in it, or raise an error."""
    if len(name) != 3:
        raise SettingsError(f"a head is (kind, layer, head), such as ('encoder', 1, 2), not {tuple(name)}")
    kind, layer, head = name
    path = attention_path(model, kind, layer)
    return path, zero_based("head", head, num_heads(model, path))
