"""Recurrent layers over sequences of different lengths.

Each layer is torch's own RNN, GRU or LSTM, so that a whole sequence is one fused call. Dropout between layers is
`nn.dropout`'s keyed dropout instead of torch's, as everywhere in a model.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transduce.nn.dropout import Dropout

Cell = Literal["rnn", "gru", "lstm"]

Carried = tuple[Tensor, ...]
"""Recurrent state, rows second: hidden (L R H), and an LSTM's cell (L R H)."""

CELLS: dict[str, type[nn.RNN | nn.GRU | nn.LSTM]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


class Recurrence(nn.Module):
    """A stack of recurrent layers, from left to right or bidirectional."""

    def __init__(
        self,
        cell: Cell,
        in_dim: int,
        hidden_dim: int,
        num_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        forget_bias: float = 0.0,
    ) -> None:
        """`forget_bias` is the initial bias of an LSTM's forget gate, or of a GRU's update gate."""
        super().__init__()
        self.cell = cell
        self.forget_bias = forget_bias
        self.hidden_dim = hidden_dim
        self.out_dim = hidden_dim * (2 if bidirectional else 1)
        self.num_carried = 2 if cell == "lstm" else 1
        self.layers = nn.ModuleList(
            CELLS[cell](
                in_dim if layer == 0 else self.out_dim, hidden_dim, batch_first=True, bidirectional=bidirectional
            )
            for layer in range(num_layers)
        )
        self.dropout = Dropout(dropout)

    def open_gates(self) -> None:
        """Set the bias of the gates that keep the state, the second in torch's LSTM and GRU; called by `initialize`."""
        if self.forget_bias != 0.0 and self.cell != "rnn":
            with torch.no_grad():
                for name, bias in self.layers.named_parameters():
                    if "bias_hh" in name:
                        bias[self.hidden_dim : 2 * self.hidden_dim] = self.forget_bias

    def forward(
        self, sequence: Tensor, carried: Carried | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Carried]:
        """Process a whole sequence.  (B T D) -> outputs of the top layer (B T N), final state of each layer (L B N).

        Without `carried` the initial state is zero, which a bidirectional encoder requires. With `lengths`, on the CPU,
        row b ends after `lengths[b]` tokens: its final state is the one at its end, and later outputs are zero. N is
        the width of one direction, or of both concatenated.
        """
        finals: list[Carried] = []
        for index, layer in enumerate(self.layers):
            before = None if carried is None else tuple(part[index : index + 1].contiguous() for part in carried)
            if index > 0:
                sequence = self.dropout(sequence)
            sequence, final = self._apply_layer(layer, sequence, before, lengths)
            finals.append(final)
        return sequence, tuple(torch.stack(parts) for parts in zip(*finals, strict=True))

    def _apply_layer(
        self, layer: nn.Module, sequence: Tensor, before: Carried | None, lengths: Tensor | None
    ) -> tuple[Tensor, Carried]:
        """Apply one layer.  (B T D) -> outputs (B T N), final state (B N) each."""
        start = before if before is None or self.cell == "lstm" else before[0]
        if lengths is None:
            outputs, after = layer(sequence, start)
        else:
            packed = pack_padded_sequence(sequence, lengths, batch_first=True, enforce_sorted=False)
            packed, after = layer(packed, start)
            outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=sequence.shape[1])
        parts = after if self.cell == "lstm" else (after,)
        return outputs, tuple(part.transpose(0, 1).flatten(1) for part in parts)


class Bridge(nn.Module):
    """tanh(Linear(both directions)), one matrix per layer, for encoders and decoders of different widths."""

    def __init__(self, num_carried: int, num_layers: int, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(in_dim, out_dim) for _ in range(num_carried * num_layers))

    def forward(self, carried: Carried) -> Carried:
        """(L B N) -> (L B H)."""
        linears = iter(self.linears)
        return tuple(
            torch.stack([torch.tanh(next(linears)(layer_BN)) for layer_BN in part_LBN.unbind()]) for part_LBN in carried
        )


def reversed_within(values: Tensor, lengths: Tensor) -> Tensor:
    """Reverse each row's first `lengths[b]` values and leave its padding in place.  (B S …), (B) -> (B S …)."""
    position_S = torch.arange(values.shape[1], device=values.device)
    mirrored_BS = lengths[:, None] - 1 - position_S
    index_BS = torch.where(mirrored_BS >= 0, mirrored_BS, position_S)
    row_B1 = torch.arange(len(values), device=values.device)[:, None]
    return values[row_B1, index_BS]
