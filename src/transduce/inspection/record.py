"""Every attention map of a translation, heard while the model replays what it has already said."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from transduce.errors import SettingsError, TransduceError
from transduce.inspection.maps import AttentionMaps, Kind, Weights
from transduce.inspection.replay import replay
from transduce.models.interface import AnyTransducer, EncoderModel
from transduce.nn.hook import record
from transduce.nn.twin import eval_mode

WITHOUT_ATTENTION = "this model has no attention to look at; inspect one that attends (a transformer, say)"


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
    them. The last token is never read, only produced, so a target of T + 1 tokens gives T rows: row t is what was
    looked at when token t + 1 was chosen, while 0 … t had been read. See `AttentionMaps.rows` and `columns`.
    """
    with record(model) as heard:
        replay(model, source_tokens, target_tokens)
    layers: dict[Kind, list[Tensor]] = {"encoder": [], "decoder": [], "cross": []}
    for path, weight_1HQM in heard.items():
        layers[_kind(path)].append(weight_1HQM[0])
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


def self_attention_of(
    model: EncoderModel, inputs: tuple[Tensor, Tensor, Tensor], pieces: Sequence[str], text: str = "", said: str = ""
) -> AttentionMaps:
    """Read one framed text, or pair, and return every map: tokens looking at tokens.

    `inputs` are tokens, which are real, and which of two texts each is of, (1 N) each; `pieces` name the tokens.
    """
    with record(model) as heard, eval_mode(model), torch.no_grad():
        model(*inputs)
    if not heard:
        raise SettingsError(WITHOUT_ATTENTION)
    return AttentionMaps(
        maps={"encoder": _stacked([weight_1HQM[0] for weight_1HQM in heard.values()])},
        source_pieces=tuple(pieces),
        target_pieces=("",),  # nothing is written
        source=text,
        translation=said,
    )


def hops_of(
    model: EncoderModel, inputs: tuple[Tensor, Tensor, Tensor], texts: Sequence[str], said: str
) -> AttentionMaps:
    """Read one story and return what each hop looked at: a layer for a hop, a column for a fact that was read.

    `texts` are the facts and the question; the memory has the newest fact first, and the map the oldest.
    """
    with record(model) as heard, eval_mode(model), torch.no_grad():
        model(*inputs)
    read = int(inputs[2].max())  # a story that is too long has lost its oldest facts
    layers = [weight_1HQM[0] for weight_1HQM in heard.values()]
    count = min(read, layers[0].shape[-1])
    if not count:
        raise SettingsError("there is nothing to look at: the story has no facts before its question")
    return AttentionMaps(
        maps={"cross": _stacked([weight_HQM[..., :count].flip(-1) for weight_HQM in layers])},
        source_pieces=tuple(texts[-1 - count : -1]),
        target_pieces=(texts[-1], said),
        source=". ".join(texts),
        translation=said,
    )


def _kind(path: str) -> Kind:
    if "cross_attention" in path:
        return "cross"
    return "encoder" if path.startswith("encoder.") else "decoder"


def _stacked(layers: list[Tensor]) -> Weights:
    """Per layer (H Q M) -> (L H Q M)."""
    weights: Weights = torch.stack(layers).to("cpu", torch.float32).numpy()
    if not np.isfinite(weights).all():
        raise TransduceError("the attention weights are not numbers; the model is damaged or its training diverged")
    return weights
