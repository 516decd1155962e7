"""One update: batches in, the weights moved once.

The batches are cut into slices of rows, and each slice goes forwards and backwards by itself, so that memory depends
on the slice and not on the batch. The gradient is the mean over all real tokens however the batches were cut, and
dropout is keyed by row, so the result is the same but for the rounding of sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import nn

from transduce.errors import SettingsError
from transduce.models.interface import Model
from transduce.nn.active_memory import relaxed_sets
from transduce.nn.dropout import DropoutKey, mixed_key, set_dropout_key
from transduce.nn.embedding import set_sparse_gradients
from transduce.nn.linear import set_half_products
from transduce.training.config import TrainingConfig
from transduce.training.distributed.ranks import ALONE, Ranks
from transduce.training.distributed.sharding import is_sharded
from transduce.training.gradient_sum import GradientSum
from transduce.training.objective import AnyBatch, batch_loss
from transduce.training.optimizer import build_optimizer, gradient_norm, move, scale_gradients
from transduce.training.system_memory import SharedShortage, ran_out_of_memory
from transduce.training.workers import Workers


class Outcome(NamedTuple):
    """What one update did."""

    loss: float
    """Sum over its tokens."""
    tokens: int
    gradient_norm: float
    finite: bool


class Slice(NamedTuple):
    """Some rows of one of the batches of an update."""

    batch: int
    first_row: int
    rows: AnyBatch
    weight: float = 1.0
    """0 for one that a rank computes only to keep step with the others."""


def cut(batches: Sequence[AnyBatch], tokens: int, ranks: int = 1) -> list[Slice]:
    """Cut batches into slices of equally many rows but for one, about `tokens` of a side in each, padding included.

    Each rank gets equally many of every batch's slices, as long as there are rows for all.
    A slice stays as wide as its batch: sentences of a batch have similar lengths, and dropout's masks fit both.
    """
    slices = []
    for index, batch in enumerate(batches):
        count = len(batch)
        pieces = min(count, ranks * -(-count * batch.width // (tokens * ranks)))
        edges = [count * piece // pieces for piece in range(pieces + 1)]
        slices += [Slice(index, start, batch.part(start, stop)) for start, stop in pairwise(edges)]
    return slices


class Updater:
    """Moves the weights of one model."""

    def __init__(self, model: Model, config: TrainingConfig, ranks: Ranks = ALONE) -> None:
        self.model, self.config, self.ranks = model, config, ranks
        self.device = model.device
        if config.gradient_checkpointing and not model.can_recompute:
            raise SettingsError(
                "training.gradient_checkpointing: this model has no blocks to compute again; leave it out"
            )
        model.recompute = config.gradient_checkpointing
        self.optimizer = build_optimizer(model, config)
        self.sharded = is_sharded(model)
        threads = config.threads or 1
        self.workers = Workers(model, 1 if self.sharded or self.device.type != "cpu" else threads)
        twins = [twin for twin in self.workers.models if twin is not model]
        self._sum = GradientSum(model, twins)
        half = config.precision == "bfloat16"
        self._autocast = half and self.device.type != "cpu"
        for each in self.workers.models:
            set_half_products(each, half and not self._autocast)
            if self.device.type == "cpu" and not self.sharded:
                set_sparse_gradients(each)

    def update(self, batches: Sequence[AnyBatch], update: int, rate: float, micro_batch_tokens: int) -> Outcome:
        """Move the weights by the mean gradient over all real tokens; if it is not finite, leave them be."""
        tokens = sum(batch.num_target_tokens for batch in batches)
        slices = self._slices(batches, micro_batch_tokens)
        mine = self.ranks.share(slices)
        self._sum.begin()

        def learn(model: Model, part: int) -> float:
            self._sum.expect(model, part)
            try:
                return self._learn(model, slices[mine[part]], update, tokens)
            except BaseException:
                self._sum.abandon()
                raise

        try:
            own, short = math.fsum(self.workers.each(learn, len(mine), self._sum.finish, train=True)), False
        except (MemoryError, RuntimeError) as error:
            if self.ranks.world == 1 or self.sharded or not ran_out_of_memory(error):
                raise
            own, short = 0.0, True
        loss = self._added_up(own, short)
        norm = float(gradient_norm(self.model))
        finite = math.isfinite(norm) and math.isfinite(loss)
        if finite:
            if 0 < self.config.max_grad_norm < norm:
                scale_gradients(self.model, self.config.max_grad_norm / norm)
            add_gradient_noise(self.model, self.config.gradient_noise, self.config.seed, update)
            move(self.optimizer, rate)
            pull_sets_together(self.model, self.config.relaxation_updates, update)
        return Outcome(loss, tokens, norm, finite)

    def _slices(self, batches: Sequence[AnyBatch], tokens: int) -> list[Slice]:
        """Cut batches up; a sharded model needs all ranks for every slice, so that each takes equally many."""
        slices = cut(batches, tokens, self.ranks.world)
        if self.sharded:
            slices += [slices[-1]._replace(weight=0.0)] * (-len(slices) % self.ranks.world)
        return slices

    def try_out(self, batch: AnyBatch, micro_batch_tokens: int) -> None:
        """Go forwards and backwards through one slice and forget it, to see what it takes."""
        model = self.workers.models[0].train()
        self._sum.begin()
        self._sum.expect(model, 0)
        last = self.config.updates  # nothing takes more than the last update
        self._learn(model, cut([batch.to(self.device)], micro_batch_tokens)[0], last, tokens=1)
        self._sum.begin()

    def _learn(self, model: Model, part: Slice, update: int, tokens: int) -> float:
        """Add the gradient of one slice to a model's, and return the loss of its tokens."""
        index, first_row, rows, weight = part
        set_dropout_key(model, DropoutKey(self.config.seed, update, index, first_row))
        if self.device.type != "cpu":
            torch.manual_seed(_mix(self.config.seed, update, index, first_row))  # torch's dropout draws from its stream
        r_drop = self.config.r_drop if update > self.config.r_drop_after else 0.0
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._autocast):
            result = batch_loss(model, rows, self.config.label_smoothing, r_drop)
        (weight * result.smoothed / tokens).backward()  # type: ignore[no-untyped-call]
        return weight * float(result.smoothed.detach())

    def _added_up(self, loss: float, short: bool) -> float:
        """Add up loss and gradients over the ranks; one without a slice adds nothing.

        Of one that was short of memory the others hear before they wait for its gradients.
        """
        if self.ranks.world == 1:
            return loss
        total = torch.tensor([loss, short], dtype=torch.float64)
        self.ranks.add_up([total])
        if total[1] > 0:
            raise SharedShortage
        if not self.sharded:  # there each rank has its part of the sums already
            trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
            for parameter in trained:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            self.ranks.add_up([parameter.grad for parameter in trained if parameter.grad is not None])
        return float(total[0])


def _mix(*words: int) -> int:
    """Make one number of several, so that neighbouring updates draw unrelated randomness."""
    mixed = 0
    for word in words:
        mixed = (mixed ^ word) * 0x9E3779B97F4A7C15 % 2**64
        mixed ^= mixed >> 31
    return mixed


# Noise on the gradient, which dies away: it shakes deep and recurrent models out of bad places early on.
#
# Neelakantan et al. 2015 (arXiv 1511.06807). What is drawn is a function of seed and update, so that a resumed run
# draws the same, and every rank too.

DECAY = 0.55
"""The exponent by which the variance falls with the updates; the paper's gamma."""


def deviation(strength: float, update: int) -> float:
    """Return the noise's standard deviation: the root of strength / (1 + update)^0.55."""
    return float((strength / (1 + update) ** DECAY) ** 0.5)


def add_gradient_noise(model: nn.Module, strength: float, seed: int, update: int) -> None:
    """Add Gaussian noise to every gradient; a strength of 0 adds none."""
    if not strength:
        return
    generator = torch.Generator().manual_seed(mixed_key((seed, update)) >> 64)
    scale = deviation(strength, update)
    for parameter in model.parameters():
        if parameter.grad is not None:
            drawn = torch.randn(parameter.shape, generator=generator)
            parameter.grad.add_(drawn.to(parameter.grad), alpha=scale)


# Relaxed weight sharing: the steps of a recurrence begin with different weights and end with the same.
#
# Kaiser & Sutskever 2016, section 3. They add the distance between the sets to the loss, and weigh it more whenever
# the model has got better; here the sets are moved towards their mean after each update, by a share that is a
# function of the update alone and ends at 1, so that a run is the same however often it stops.


def pull(until: int, update: int) -> float:
    """Return the share of the way to the mean: the square of how much of the time is over, from `until` on 1."""
    return min(1.0, update / until) ** 2


def pull_sets_together(model: nn.Module, until: int, update: int) -> None:
    """Move all sets of weights towards their mean, so that at update `until` they are one; 0 leaves them apart."""
    if until:
        for sets in relaxed_sets(model):
            sets.pull_together(pull(until, update))
