"""Gradients summed over the ranks while the backward pass still computes earlier ones.

On GPUs the sum of one bucket travels while the next is computed, as in DistributedDataParallel (Li et al. 2020), which
cannot be used: it hooks into `forward` only, and our models are called through `encode` too. The buckets are filled
from the last parameter backwards, roughly the order in which gradients are complete, and every rank sends them in that
order, whatever is ready first: so all ranks agree on each message. What a micro-batch has no gradient for is sent at
the end, as zeros where no micro-batch had one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

BUCKET_BYTES = 25 * 2**20
"""Bytes of gradients in one message, as in DistributedDataParallel: the first must leave early."""


class OverlappedReduction:
    """Sums the gradients of one model over all ranks, bucket by bucket, from within its backward pass."""

    def __init__(self, model: nn.Module, bucket_bytes: int = BUCKET_BYTES) -> None:
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._buckets = _filled(trained[::-1], bucket_bytes)
        self._armed = False
        self._missing: list[int] = []
        """Gradients of each bucket that are not complete."""
        self._sent: list[tuple[Tensor, dist.Work | None]] = []
        for number, bucket in enumerate(self._buckets):
            for parameter in bucket:
                ready = partial(self._ready, number)
                parameter.register_post_accumulate_grad_hook(ready)  # type: ignore[no-untyped-call]

    def arm(self) -> None:
        """Send gradients in the next backward pass, this rank's last one of the update."""
        self._missing, self._armed = [len(bucket) for bucket in self._buckets], True

    def finish(self) -> None:
        """Send what is left, and replace all gradients by their sums. Waiting for a GPU's messages is left to the GPU.

        A rank whose backward pass failed or that has no micro-batch takes part, since the others wait for it.
        """
        self._armed = False
        while len(self._sent) < len(self._buckets):
            self._send()
        for bucket, (flat, work) in zip(self._buckets, self._sent, strict=True):
            if work is not None:
                work.wait()
            parts = torch.split(flat, [parameter.numel() for parameter in bucket])
            gradients = [parameter.grad for parameter in bucket if parameter.grad is not None]
            torch._foreach_copy_(gradients, [part.view_as(own) for part, own in zip(parts, gradients, strict=True)])
        self._sent = []

    def _ready(self, number: int, _: Tensor) -> None:
        if not self._armed:
            return
        self._missing[number] -= 1
        while len(self._sent) < len(self._buckets) and self._missing[len(self._sent)] == 0:
            self._send()

    def _send(self) -> None:
        bucket = self._buckets[len(self._sent)]
        for parameter in bucket:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        flat = torch.cat([parameter.grad.flatten() for parameter in bucket if parameter.grad is not None])
        self._sent.append((flat, dist.all_reduce(flat, async_op=True)))


def _filled(parameters: Sequence[Tensor], size: int) -> list[list[Tensor]]:
    """Split parameters into buckets of about a size in bytes, in their order."""
    buckets: list[list[Tensor]] = []
    room = 0
    for parameter in parameters:
        if not buckets or parameter.nbytes > room:
            buckets.append([])
            room = size
        buckets[-1].append(parameter)
        room -= parameter.nbytes
    return buckets
