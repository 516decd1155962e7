"""Guided alignment: a cross-attention head that learns the alignment of words (Chen et al. 2016; Garg et al. 2019).

The weights with which the first head of the second-last decoder layer predicts a target token are trained, by
cross-entropy, towards an even distribution over the source tokens that the token is aligned with.

Differs from Garg et al.: the head sees the past of the target only, as in decoding, so that there is one
forward pass, and the loss is divided by the number of all target tokens, not of those with an alignment.

Letters: B sentences, H heads, T target, S source, K width of a head.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from transduce.models.interface import AnyTransducer
from transduce.nn.attention.multi_head import MultiHeadAttention
from transduce.nn.hook import HookPoint

AlignmentHead = tuple[int, int]
"""(decoder layer, head), both from 0."""


def cross_attentions(model: nn.Module) -> list[nn.Module]:
    """Return the attentions of the decoder to the source, from the first layer to the last."""
    found = (module for name, module in model.named_modules() if name.endswith("cross_attention"))
    return [getattr(module, "attention", module) for module in found]


def default_alignment_head(model: nn.Module) -> AlignmentHead:
    """Return the head that is guided: the first one of the second-last layer, or of the only one."""
    return max(0, len(cross_attentions(model)) - 2), 0


@contextmanager
def record_scores(model: AnyTransducer, head: AlignmentHead) -> Iterator[list[Tensor]]:
    """Record the scores of one head in a pass, with gradients: the list has one (B T S) when the context has ended.

    They are computed from the head's queries and keys, so that the model's own kernels stay as they are, and outside
    of blocks, which may be recomputed in the backward pass.
    """
    attention = cross_attentions(model)[head[0]]
    is_multi_head = isinstance(attention, MultiHeadAttention)
    found: dict[str, Tensor] = {}
    scores: list[Tensor] = []
    with ExitStack() as stack:
        # a recurrent or convolutional decoder has a single head, whose hooks get the scores of a whole pass
        for name in ("query", "key") if is_multi_head else ("score",):
            point: HookPoint = getattr(attention, name)
            stack.callback(point.register_forward_hook(partial(_keep, found, name)).remove)
        yield scores
    if isinstance(attention, MultiHeadAttention):
        group = head[1] * attention.shape.key_value_heads // attention.shape.num_heads
        scores.append(_scores(found["query"][:, head[1]], found["key"][:, group], attention.scale))
    else:
        scores.append(found["score"][:, head[1]])


def _keep(found: dict[str, Tensor], name: str, module: nn.Module, inputs: object, value: Tensor) -> None:
    found[name] = value


def _scores(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """Return QK^T · scale, in single precision also under autocast.  (B T K), (B S K) -> (B T S)."""
    with torch.autocast(query.device.type, enabled=False):
        return (_at_least_single(query) * scale) @ _at_least_single(key).transpose(1, 2)


def _at_least_single(value: Tensor) -> Tensor:
    return value.float() if value.dtype.itemsize < 4 else value


def alignment_loss(score: Tensor, allowed: Tensor, guide: Tensor) -> Tensor:
    """Return the weighted cross-entropy -Σ guide · log softmax(score), summed.  (B T S), (B S), (B T S) -> ()."""
    score, allowed_B1S = _at_least_single(score), allowed[:, None]
    log_total_BT = score.masked_fill(~allowed_B1S, -torch.inf).logsumexp(dim=-1)
    return (guide.sum(dim=-1) * log_total_BT).sum() - (guide * score.masked_fill(~allowed_B1S, 0.0)).sum()
