"""Token embeddings and the output layer (section 3.4)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.cpu.packed import Freezable, packed


class Embedding(nn.Module):
    """A vector per token, multiplied by √D to balance it with the position encodings."""

    def __init__(self, size: int, dim: int, scaled: bool = True, std: float | None = None) -> None:
        """`std` is the standard deviation of the initialisation, 1 / √D by default."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, dim))
        self.std = dim**-0.5 if std is None else std
        self.scale = math.sqrt(dim) if scaled else 1.0
        self.sparse = False
        """Whether the gradient is sparse: only the rows that were looked up, see `set_sparse_gradients`."""

    def forward(self, tokens: Tensor) -> Tensor:
        """(…) -> (… D)."""
        vectors = F.embedding(tokens, self.weight, sparse=self.sparse)
        return vectors * self.scale if self.scale != 1.0 else vectors

    def extra_repr(self) -> str:
        return "{}, {}".format(*self.weight.shape)


class Output(Freezable):
    """The linear layer before the softmax. Its weight may be tied to an embedding or fixed."""

    bias: nn.Parameter | None
    half_products = False
    """Whether the loss computes this layer's products in bfloat16 in training, see `nn.linear`."""

    def __init__(
        self, size: int, dim: int, bias: bool = False, tied: Embedding | None = None, fixed: Tensor | None = None
    ) -> None:
        """`fixed` is a constant weight that is neither trained nor saved."""
        super().__init__()
        if fixed is not None:
            self.register_buffer("weight", fixed, persistent=False)
        else:
            self.weight = nn.Parameter(torch.empty(size, dim)) if tied is None else tied.weight
        self.bias = nn.Parameter(torch.empty(size)) if bias else None

    def forward(self, hidden: Tensor, vocabulary: Tensor | None = None) -> Tensor:
        """Score every token, or those of a shortlist only.  (… D), (V') -> (… V')."""
        if vocabulary is not None:
            return F.linear(hidden, *self._rows(vocabulary))
        product = self.packed if hidden.dim() == 2 else None
        if product is not None:
            return product(hidden)
        return F.linear(hidden, self.weight, self.bias)

    def part(self, vocabulary: Tensor) -> Callable[[Tensor], Tensor]:
        """Gather the weights of a shortlist, once for many steps.  (V') -> a function (R D) -> (R V')."""
        weight, bias = self._rows(vocabulary)
        return packed(weight, bias, self.precision) or (lambda hidden: F.linear(hidden, weight, bias))

    def _rows(self, vocabulary: Tensor) -> tuple[Tensor, Tensor | None]:
        return self.weight[vocabulary], None if self.bias is None else self.bias[vocabulary]

    def extra_repr(self) -> str:
        return "{}, {}, bias={}".format(*self.weight.shape, self.bias is not None)


def set_sparse_gradients(model: nn.Module) -> None:
    """Use sparse gradients for embeddings that are tied to the output layer.

    The output layer's gradient is dense anyway: adding the few rows that were looked up is cheaper than one more dense
    matrix per embedding.
    """
    outputs = {id(module.weight) for module in model.modules() if isinstance(module, Output)}
    for module in model.modules():
        if isinstance(module, Embedding):
            module.sparse = id(module.weight) in outputs


def binary_code(size: int) -> Tensor:
    """Binary code of every token, counted back from the last token.  -> (size, digits) of 0 and 1.

    Special tokens come first in a vocabulary. Counted from the end they are the ones with the highest digit set, if
    there are few of them besides a power of two of others: that digit tells special tokens from values.
    """
    digits = max(1, (size - 1).bit_length())
    number_V1 = torch.arange(size - 1, -1, -1)[:, None]
    return ((number_V1 >> torch.arange(digits)) & 1).float()
