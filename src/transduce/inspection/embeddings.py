"""Token embeddings and position encodings of a text: what the first layer of an encoder or language model reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from transduce.errors import SettingsError
from transduce.inspection.arrays import float_array
from transduce.inspection.replay import ForcedDecoding
from transduce.models.gpt import Gpt
from transduce.models.interface import AnyTransducer
from transduce.models.transformer import Transformer

Values = npt.NDArray[np.float32]
MAX_CHANNELS = 64
"""Channels of a vector that `to_json` gives."""


@dataclass(frozen=True, eq=False, repr=False)
class InputEmbeddings:
    """N tokens and their vectors of width D."""

    pieces: tuple[str, ...]
    tokens: tuple[int, ...]
    vectors: Values
    """(N D): token embeddings, scaled as the model scales them."""
    positions: Values | None
    """(N D): what is added to them; None where the model adds nothing, since its positions are in the attention."""

    @property
    def similarity(self) -> Values | None:
        """Dot products of the position encodings.  -> (N N)."""
        return None if self.positions is None else self.positions @ self.positions.T

    def to_json(self) -> dict[str, Any]:
        """Return pieces, tokens and the first channels as JSON values."""
        shown = None if self.positions is None else self.positions[:, :MAX_CHANNELS]
        return {
            "source": {
                "pieces": list(self.pieces),
                "tokens": list(self.tokens),
                "dim": self.vectors.shape[1],
                "vectors": float_array(self.vectors[:, :MAX_CHANNELS]),
            },
            "positions": None if shown is None else float_array(shown),
            "similarity": None if self.similarity is None else float_array(self.similarity),
        }


@torch.no_grad()
def input_embeddings(model: AnyTransducer, forced: ForcedDecoding) -> InputEmbeddings:
    """Return the input of the encoder, or of a language model."""
    if isinstance(model, Transformer):
        embed, positions = model.source_embedding, model.source_positions
        tokens, pieces = forced.source_tokens, forced.source_pieces
    elif isinstance(model, Gpt):
        embed, positions = model.embedding, model.positions
        tokens, pieces = forced.read_tokens, forced.read_pieces
    else:
        raise SettingsError("embeddings can be shown for a transformer or a gpt; this model is neither")
    vector_ND = embed(torch.tensor(tokens, device=model.device)).float().cpu().numpy()
    added_ND = positions.first(len(tokens)).float().expand(len(tokens), -1).cpu().numpy()
    return InputEmbeddings(pieces, tokens, vector_ND, added_ND if added_ND.shape == vector_ND.shape else None)
