"""Attention maps of a translation, prompt or text, recorded while a twin of the model replays it by teacher forcing.

Hooks are attached to a twin that shares the weights, so that a model in use is never touched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from transduce.errors import SettingsError, TransduceError
from transduce.inspection.component import attention_kind
from transduce.inspection.maps import AttentionMaps, Kind, Weights, zero_based
from transduce.inspection.replay import ForcedDecoding, Pieces, decoding_steps, replay
from transduce.models.interface import AnyTransducer, EncoderModel, LanguageModel, State
from transduce.nn.hook import hook_points, record, twin

WITHOUT_ATTENTION = "this model has no attention maps; inspect a model with attention, such as a transformer"
MAX_WEIGHTS = 2**27
"""Maximum number of weights that are recorded: half a gigabyte."""


def attention_of(
    model: AnyTransducer,
    source_tokens: Sequence[int],
    target_tokens: Sequence[int],
    *,
    source_pieces: Sequence[str] | None = None,
    target_pieces: Sequence[str] | None = None,
    source: str = "",
    translation: str = "",
) -> AttentionMaps:
    """Replay one translation and return every attention map the model has.

    `source_tokens` are what the encoder read, its end token included. `target_tokens` begin with the start token and
    end with the last token that was produced (the end token, unless the hypothesis was cut off); pieces name all of
    them. The last token is never read, only produced, so a target of T + 1 tokens gives T rows: row t is the
    attention when token t + 1 was chosen, after 0 … t had been read. See `AttentionMaps.rows` and `columns`.
    """
    observed = twin(model)
    with record(observed) as recorded:
        replay(observed, source_tokens, target_tokens[:-1])
    layers: dict[Kind, list[Tensor]] = {"encoder": [], "decoder": [], "cross": []}
    for path, weight_1HQM in recorded.items():
        layers[attention_kind(path)].append(weight_1HQM[0])
    maps = {kind: _stacked(found) for kind, found in layers.items() if found}
    if not maps:
        raise SettingsError(WITHOUT_ATTENTION)
    return AttentionMaps(
        maps=maps,
        source_pieces=tuple(map(str, source_tokens) if source_pieces is None else source_pieces),
        target_pieces=tuple(map(str, target_tokens) if target_pieces is None else target_pieces),
        source=source,
        translation=translation,
    )


def forced_attention(model: AnyTransducer, forced: ForcedDecoding) -> AttentionMaps:
    """The same for a forced decoding."""
    return attention_of(
        model,
        forced.source_tokens,
        forced.target_tokens,
        source_pieces=forced.source_pieces,
        target_pieces=(*forced.read_pieces[:1], *forced.produced_pieces),
        source=forced.source,
        translation=forced.output,
    )


def map_paths(model: nn.Module, kind: Kind) -> list[str]:
    """Return the hook points of the attention maps of one kind, the first layer first.

    A language model has one kind, "causal"; a text encoder has "encoder", or "cross" where it attends to facts.
    """
    points = list(hook_points(model, ("weight",)))
    if isinstance(model, LanguageModel):
        return points if kind == "causal" else []
    if isinstance(model, EncoderModel):
        return points if kind == ("cross" if model.attends_to_facts else "encoder") else []
    return [path for path in points if attention_kind(path) == kind]


def layer_attention(model: AnyTransducer, forced: ForcedDecoding, kind: Kind, layer: int) -> Weights:
    """Replay a forced decoding and return the maps of one layer: the same as `AttentionMaps` has.  -> (H Q M)."""
    path = layer_path(model, kind, layer)
    observed = twin(model)
    with record(observed, ("weight",), inside=path) as recorded:
        replay(observed, forced.source_tokens, forced.read_tokens)
    weights: Weights = _stacked([recorded[path][0]])[0]
    return weights


def layer_path(model: nn.Module, kind: Kind, layer: int) -> str:
    """Return the hook point of the maps of one layer."""
    paths = map_paths(model, kind)
    if not paths:
        raise SettingsError(f"the model has no attention maps of the kind '{kind}'")
    return paths[zero_based("layer", layer, len(paths))]


def causal_attention_of(
    model: LanguageModel[State],
    tokens: Sequence[int],
    pieces: Pieces,
    *,
    prompt: str = "",
    continuation: str = "",
    generated: int = 0,
    top: int = 10,
) -> AttentionMaps:
    """Replay a prompt, or a prompt and its continuation, with a language model.

    `tokens` are all that it reads, the last `generated` of them its own. Row t of a map is the attention when token t
    was read, step t the distribution after it. A model without attention gives no maps, only steps.
    """
    observed = twin(model)
    with record(observed) as recorded:
        if len(tokens) > 1:
            replay(observed, (), tokens[:2])
            _check_size(recorded, len(tokens))
        hidden_TD = replay(observed, (), tokens)
    layers = [weight_1HQM[0] for weight_1HQM in recorded.values()]
    return AttentionMaps(
        maps={"causal": _stacked(layers)} if layers else {},
        source_pieces=tuple(pieces(tokens)),
        source=prompt,
        translation=continuation,
        steps=tuple(decoding_steps(observed, hidden_TD, tokens[1:], top, pieces)),
        generated=generated,
        subject="prompt",
    )


def self_attention_of(
    model: EncoderModel,
    inputs: tuple[Tensor, Tensor, Tensor],
    pieces: Sequence[str],
    text: str = "",
    output: str = "",
) -> AttentionMaps:
    """Encode one framed text, or pair, and return its self-attention maps.

    `inputs` are tokens, their padding mask and their segments, (1 N) each; `pieces` name the tokens.
    """
    recorded = _recorded(model, inputs)
    if not recorded:
        raise SettingsError(WITHOUT_ATTENTION)
    return AttentionMaps(
        maps={"encoder": _stacked([weight_1HQM[0] for weight_1HQM in recorded.values()])},
        source_pieces=tuple(pieces),
        source=text,
        translation=output,
        subject="text",
    )


def hops_of(
    model: EncoderModel, inputs: tuple[Tensor, Tensor, Tensor], texts: Sequence[str], prediction: str
) -> AttentionMaps:
    """Encode a context and its question and return the attention of each hop: a layer per hop, a column per sentence.

    `texts` are the sentences of the context, then the question; the memory has the newest first, the map the oldest.
    """
    recorded = _recorded(model, inputs)
    read = int(inputs[2].max())  # a context that is too long has lost its oldest sentences
    layers = [weight_1HQM[0] for weight_1HQM in recorded.values()]
    count = min(read, layers[0].shape[-1])
    if not count:
        raise SettingsError("the context has no sentences before its question; give some")
    return AttentionMaps(
        maps={"cross": _stacked([weight_HQM[..., :count].flip(-1) for weight_HQM in layers])},
        source_pieces=tuple(texts[-1 - count : -1]),
        target_pieces=(texts[-1], prediction),
        source=". ".join(texts),
        translation=prediction,
        subject="facts",
    )


@torch.no_grad()
def _recorded(model: EncoderModel, inputs: tuple[Tensor, Tensor, Tensor]) -> dict[str, Tensor]:
    """Return the attention weights of one pass, by path."""
    observed = twin(model).eval()
    with record(observed) as recorded:
        observed(*inputs)
    return recorded


def _check_size(recorded: dict[str, Tensor], length: int) -> None:
    """Reject a text whose maps would not fit in memory, given what was recorded of a short one."""
    heads = sum(weight_1HQM.shape[1] for weight_1HQM in recorded.values())
    if heads * length**2 > MAX_WEIGHTS:
        raise SettingsError(
            f"the text has {length:,} tokens; attention maps of {heads:,} heads are limited to "
            f"{math.isqrt(MAX_WEIGHTS // heads):,}; give a shorter text"
        )


def _stacked(layers: list[Tensor]) -> Weights:
    """Per layer (H Q M) -> (L H Q M)."""
    weights: Weights = torch.stack(layers).to("cpu", torch.float32).numpy()
    if not np.isfinite(weights).all():
        raise TransduceError("the attention weights are not numbers; the model is damaged or its training diverged")
    return weights
