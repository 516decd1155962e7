"""Token lists of different lengths as one batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from transduce.text.specials import Specials


def source_batch(sources: Sequence[Sequence[int]], specials: Specials, device: torch.device) -> tuple[Tensor, Tensor]:
    """Pad sources, each with its end token.  -> tokens (B S), allowed (B S)."""
    rows = [torch.tensor([*source, specials.end]) for source in sources]
    tokens_BS = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=specials.pad)
    length_B1 = torch.tensor([[len(row)] for row in rows])
    allowed_BS = torch.arange(tokens_BS.shape[1]) < length_B1
    return tokens_BS.to(device), allowed_BS.to(device)


def target_batch(
    targets: Sequence[Sequence[int]], specials: Specials, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Pad targets.  -> what a decoder reads (B T), what it should say (B T), which of that is real (B T)."""
    output_BT, real_BT = source_batch(targets, specials, device)
    start_B1 = torch.full((len(targets), 1), specials.start, device=device)
    return torch.cat([start_B1, output_BT[:, :-1]], dim=1), output_BT, real_BT
