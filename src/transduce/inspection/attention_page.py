"""Attention maps as the attention view takes them, in a self-contained page.

Weights are shares in 16 bits, exact to 1e-5, deflated and in base64. Millions of them are stored as square roots in 8
bits, which keeps small weights distinct from zero: the weights of a long text are all small. A long text in a model of
many heads leaves out the smallest. The page says what was rounded or left out.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from transduce.inspection.arrays import to_shares16
from transduce.inspection.page import saved_page
from transduce.inspection.replay import DecodingStep

if TYPE_CHECKING:
    from transduce.inspection.maps import AttentionMaps, Kind

Weights = npt.NDArray[np.float32]

MANY_WEIGHTS = 2_000_000
"""More weights than this are stored in 8 bits: an error of at most 0.004, and a page of a few megabytes."""

MAX_WEIGHTS = 20_000_000
"""With more weights than this, those below `LEAST` are left out, which keeps a page below about 16 megabytes."""
LEAST = 0.002


def attention_page(several: Sequence[AttentionMaps]) -> str:
    """Return the whole page, with the maps of one text or of several to choose from."""
    texts = [content(maps) for maps in several]
    return saved_page("attention", texts[0] if len(texts) == 1 else {"texts": texts}, "Attention")


def content(maps: AttentionMaps) -> dict[str, Any]:
    """Return what the attention view shows of one text, as JSON values."""
    count = sum(weights.size for weights in maps.maps.values())
    least = LEAST if count > MAX_WEIGHTS else 0.0
    return {
        "source": maps.source,
        "output": maps.translation,
        "subject": maps.subject,
        "generated": maps.generated,
        "pieces": list(maps.source_pieces),
        "kinds": _kinds(maps, maps.maps, count > MANY_WEIGHTS, least),
        "steps": [_step(step) for step in maps.steps],
        "least": least,
    }


def _kinds(maps: AttentionMaps, weights: Mapping[Kind, Weights], small: bool, least: float) -> dict[str, Any]:
    return {
        kind: {
            "layers": weights_LHQM.shape[0],
            "heads": weights_LHQM.shape[1],
            "rows": list(maps.rows(kind)),
            "columns": list(maps.columns(kind)),
            "arrays": [_array(np.where(layer < least, 0.0, layer), small) for layer in weights_LHQM],
        }
        for kind, weights_LHQM in weights.items()
    }


def _array(values: Weights, small: bool) -> dict[str, Any]:
    """Return an array of shares as `lib/arrays.js` reads it."""
    stored: npt.NDArray[Any] = to_shares16(values)
    if small:
        stored = np.rint(np.sqrt(values.clip(0, 1)) * 255).astype("u1")
    text = base64.b64encode(zlib.compress(stored.tobytes(), level=6)).decode()
    return {"shape": list(values.shape), "roots8" if small else "shares16": text, "deflated": True}


def _step(step: DecodingStep) -> dict[str, Any]:
    """Return one next-token distribution and the token that followed."""
    chosen = step.chosen
    return {
        "position": step.position,
        "token": None if chosen is None else chosen.token,
        "piece": None if chosen is None else chosen.piece,
        "probability": None if chosen is None else chosen.probability,
        "rank": step.rank,
        "entropy": step.entropy,
        "top": [{"token": one.token, "piece": one.piece, "probability": one.probability} for one in step.top],
    }
