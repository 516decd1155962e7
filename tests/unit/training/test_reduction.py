"""Gradients summed from within the backward pass: two gloo ranks, bit by bit what is summed afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from transduce.training.reduction import _filled

RANK = """
import sys
import torch, torch.distributed as dist
from torch import nn
from transduce.training.distributed import Ranks
from transduce.training.reduction import OverlappedReduction

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 7), nn.Tanh(), nn.Linear(7, 3))
unused, tied = nn.Linear(3, 3), nn.Linear(7, 7)
tied.weight = model[2].weight
model.extra = nn.ModuleList([unused, tied])
overlapped = OverlappedReduction(model, bucket_bytes=160)
assert len(overlapped._buckets) > 3
ranks = Ranks(rank, 2)

def backward(number):
    generator = torch.Generator().manual_seed(10 * number + rank)
    hidden = model[:3](torch.randn(4, 5, generator=generator))
    loss = (model[3:5](hidden) ** 2).sum()
    (loss + tied(hidden).sum() if number % 2 else loss).backward()

def sums(overlap, fails=False, idle=False):
    model.zero_grad(set_to_none=True)
    for number in range(0 if idle else 3):
        if overlap and number == 2:
            overlapped.arm()
        if fails and number == 2:
            break
        backward(number)
    if overlap:
        overlapped.finish()
    else:
        for parameter in model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        ranks.add_up([parameter.grad for parameter in model.parameters()])
    return [parameter.grad.clone() for parameter in model.parameters()]

for idle in (False, rank == 1):
    after, during = sums(False, idle=idle), sums(True, idle=idle)
    assert all(map(torch.equal, after, during))
    assert any(gradient.abs().sum() > 0 for gradient in during)
sums(True, fails=rank == 1)  # ends: the other rank does not wait for ever
dist.destroy_process_group()
"""


def test_two_ranks_sum_the_same_bits_during_the_backward_pass(tmp_path: Path) -> None:
    """With a tied weight, one that has no gradient, a rank without micro-batches, and one that fails."""
    command = [sys.executable, "-c", RANK]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store")], stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    for one in ranks:
        _, errors = one.communicate(timeout=120)
        assert one.returncode == 0, errors


@pytest.mark.parametrize("size", [1, 100, 10_000])
def test_buckets_hold_every_parameter_once_in_order(size: int) -> None:
    parameters = [torch.empty(number) for number in (3, 50, 7, 7, 1)]
    buckets = _filled(parameters, size)
    assert [id(one) for bucket in buckets for one in bucket] == [id(one) for one in parameters]
    assert all(len(bucket) == 1 or sum(one.nbytes for one in bucket) <= size for bucket in buckets)
