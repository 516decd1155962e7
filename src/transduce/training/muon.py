"""Muon (Jordan et al. 2024): momentum, orthogonalised, for the matrices inside blocks; Adam for all other weights.

An update of a matrix is replaced by the nearest orthogonal one, so that all its directions grow equally. As in "Muon is
Scalable for LLM Training" (Liu et al. 2025, arXiv 2502.16982, section 2.2) it is scaled by 0.2 · sqrt(larger
dimension), so that its values are as large as Adam's and both have one learning rate.

Matrices that are packed into one weight (query, key and value; gate and up) are orthogonalised apart. Convolution
kernels are matrices here already (`nn.convolution`). Recurrent matrices (torch's RNN, GRU and LSTM), embeddings, the
output layer, position tables, norms, biases and everything outside blocks have Adam.

Differs from torch.optim.Muon, which computes in bfloat16 and knows nothing of packed matrices. On a CPU: float32, each
matrix on one thread, so that the result does not depend on the number of threads. On a GPU: matrices of one shape
together, in bfloat16 where training is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from transduce.nn.embedding import Embedding, Output
from transduce.nn.linear import Linear
from transduce.training.device import blocks_of
from transduce.training.distributed import full, spread_like

MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic polynomial; they maximise its slope at zero (Jordan et al. 2024)."""
NEWTON_SCHULZ_STEPS = 5
SMALLEST_NORM = 1e-7
"""Smallest divisor of a matrix: a gradient of zero stays zero."""
SCALE = 0.2
"""Root mean square of Adam's updates, by measurement (Liu et al. 2025)."""
BUFFER = "momentum_buffer"
"""Name of the momentum in the optimizer's state, as in torch."""
FOUND_INF = "found_inf"
"""Attribute of an optimizer by which a step is skipped on the device, as in torch: 1 where it is, 0 where not."""

Parallel = Callable[[Callable[[int], None], int], object]
"""(work, parts): calls work(part) for every part, on several threads."""


class Matrix(NamedTuple):
    """A weight that Muon updates, and the rows of each matrix packed into it."""

    weight: Tensor
    parts: list[int]


def hidden_matrices(model: nn.Module) -> list[Matrix]:
    """Return the weights of linear layers inside blocks, each once, without those shared with an embedding."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, Embedding | Output)}
    found: dict[int, Matrix] = {}
    for block in blocks_of(model):
        for module in block.modules():
            if isinstance(module, Linear) and min(module.weight.shape) > 1 and id(module.weight) not in tables:
                found.setdefault(id(module.weight), Matrix(module.weight, module.matrices))
    return list(found.values())


def orthogonalised(matrix: Tensor) -> Tensor:
    """Return about U V^T of a matrix U S V^T: five Newton–Schulz steps; singular values end between 0.7 and 1.2."""
    a, b, c = NEWTON_SCHULZ
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    wide = wide / wide.norm().clamp(min=SMALLEST_NORM)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide.T if matrix.shape[0] > matrix.shape[1] else wide


def orthogonalised_together(matrices: Sequence[Tensor], half: bool) -> list[Tensor]:
    """The same for many matrices, those of one shape as one batch of products; in bfloat16 if `half`."""
    a, b, c = NEWTON_SCHULZ
    by_shape: dict[torch.Size, list[int]] = {}
    for index, matrix in enumerate(matrices):
        by_shape.setdefault(matrix.shape, []).append(index)
    found = list(matrices)
    for shape, indices in by_shape.items():
        tall = shape[0] > shape[1]
        wide = torch.stack([matrices[index].mT if tall else matrices[index] for index in indices])
        wide = wide / wide.norm(dim=(1, 2), keepdim=True).clamp(min=SMALLEST_NORM)
        wide = wide.bfloat16() if half else wide
        for _ in range(NEWTON_SCHULZ_STEPS):
            gram = wide @ wide.mT
            wide = torch.baddbmm(wide, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
        for index, made in zip(indices, (wide.mT if tall else wide).unbind(), strict=True):
            found[index] = made.to(matrices[index].dtype)
    return found


def _one_by_one(work: Callable[[int], None], parts: int) -> None:
    for part in range(parts):
        work(part)


class Muon(Optimizer):
    """Muon for matrices, AdamW for other weights; both share one state, by parameter, and one learning rate."""

    def __init__(
        self, matrices: list[Matrix], adam: AdamW, learning_rate: float, weight_decay: float, sharded: bool = False
    ) -> None:
        """A sharded model's matrices are gathered one after the other, in the same order on all ranks."""
        super().__init__([matrix.weight for matrix in matrices], {"lr": learning_rate, "weight_decay": weight_decay})
        self.matrices, self.adam, self.sharded = matrices, adam, sharded
        self.state = adam.state
        self.param_groups += adam.param_groups  # the same objects: one learning rate
        self.parallel: Parallel = _one_by_one
        """Runs the matrices in parallel; set by the training step, which has threads."""
        self.half = False
        """Whether a GPU orthogonalises in bfloat16; set by the training step."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure is used here
        """Update all weights that have a gradient.

        Everything that takes memory comes first: where it runs out, no matrix has changed, and the update can be made
        again.
        """
        assert closure is None
        used = [matrix for matrix in self.matrices if matrix.weight.grad is not None]
        for matrix in used:
            if BUFFER not in self.state[matrix.weight]:
                self.state[matrix.weight][BUFFER] = torch.zeros_like(matrix.weight)
        if self._on_device(used):
            self._step_on_device(used)
            return
        updates: list[Tensor | None] = [None] * len(used)

        def compute(part: int) -> None:
            updates[part] = self._update(used[part])

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            run = _one_by_one if self.sharded else self.parallel
            run(compute, len(used))
        finally:
            torch.set_num_threads(threads)
        self.adam.step()
        for matrix, update in zip(used, updates, strict=True):
            assert update is not None
            self._apply(matrix.weight, update)

    @torch.no_grad()
    def _update(self, matrix: Matrix) -> Tensor:
        """Return the scaled, orthogonalised update of a matrix, and change nothing."""
        weight, gradient = matrix.weight, matrix.weight.grad
        assert gradient is not None
        buffer = self.state[weight][BUFFER].lerp(gradient, 1 - MOMENTUM)
        nesterov = full(gradient.lerp(buffer, MOMENTUM))
        parts = [
            orthogonalised(part).mul_(SCALE * math.sqrt(max(part.shape)))
            for part in torch.split(nesterov, matrix.parts)
        ]
        return spread_like(torch.cat(parts), weight)

    def _on_device(self, used: Sequence[Matrix]) -> bool:
        return bool(used) and used[0].weight.device.type != "cpu" and not self.sharded

    def _step_on_device(self, used: Sequence[Matrix]) -> None:
        """The same step without waiting for the device: a step to be skipped has a gradient and a rate of zero."""
        found: Tensor | None = getattr(self, FOUND_INF, None)
        weights, gradients = [matrix.weight for matrix in used], [_gradient(matrix.weight) for matrix in used]
        kept: Tensor | float = 1.0
        if found is not None:
            kept = 1.0 - found
            for gradient in gradients:
                gradient.masked_fill_(found > 0, 0.0)
        buffers = [self.state[weight][BUFFER] for weight in weights]
        nesterov = torch._foreach_lerp(gradients, torch._foreach_lerp(buffers, gradients, 1 - MOMENTUM), MOMENTUM)
        parts = [torch.split(update, matrix.parts) for update, matrix in zip(nesterov, used, strict=True)]
        made = iter(orthogonalised_together([part for several in parts for part in several], self.half))
        rate, decay = self.param_groups[0]["lr"], self.param_groups[0]["weight_decay"]
        vars(self.adam)[FOUND_INF] = found
        self.adam.step()
        del vars(self.adam)[FOUND_INF]
        for weight, gradient, buffer, several in zip(weights, gradients, buffers, parts, strict=True):
            update = torch.cat([next(made).mul_(SCALE * math.sqrt(max(part.shape))) for part in several])
            buffer.lerp_(gradient, (1 - MOMENTUM) * kept)
            if decay:
                weight.mul_(1 - rate * decay * kept)
            weight.sub_(update * (rate * kept))

    def _apply(self, weight: Tensor, update: Tensor) -> None:
        """Take the step; it allocates nothing."""
        rate, decay = self.param_groups[0]["lr"], self.param_groups[0]["weight_decay"]
        assert weight.grad is not None
        self.state[weight][BUFFER].lerp_(weight.grad, 1 - MOMENTUM)
        if decay:
            weight.mul_(1 - rate * decay)
        weight.add_(update, alpha=-rate)


def _gradient(weight: Tensor) -> Tensor:
    assert weight.grad is not None
    return weight.grad
