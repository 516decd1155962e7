"""One training step: batches in, the weights updated once.

The batches are split into micro-batches of rows, and each goes forward and backward by itself, so that memory depends
on the micro-batch and not on the batch. The gradient is the mean over all real target tokens however the batches were
split, and dropout is keyed by row, so the result is the same but for the rounding of sums.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transduce import rng
from transduce.data.batching import Batch
from transduce.errors import SettingsError
from transduce.models.interface import Model
from transduce.nn.cpu.cross_entropy import CrossEntropy
from transduce.nn.dropout import DropoutKey, set_dropout_key
from transduce.nn.embedding import set_sparse_gradients
from transduce.nn.linear import set_half_products
from transduce.training.config import TrainingConfig
from transduce.training.device import compile_blocks
from transduce.training.distributed import ALONE, Ranks, is_sharded
from transduce.training.memory import ran_out_of_memory
from transduce.training.muon import Muon
from transduce.training.optimizer import build_optimizer
from transduce.training.reduction import OverlappedReduction
from transduce.training.update import QueuedResult, StepResult, build_update
from transduce.training.workers import Workers

Loss = Callable[[Any, Any, float, float], CrossEntropy]
"""(model, batch, label smoothing, weight of R-Drop) -> sums over the batch's target tokens."""


class MicroBatch(NamedTuple):
    """Some rows of one of the batches of an update."""

    batch: int
    first_row: int
    rows: Batch
    weight: float = 1.0
    """0 for one that a rank computes only because all ranks must run equally many."""


def split_batches(batches: Sequence[Batch], tokens: int, ranks: int = 1) -> list[MicroBatch]:
    """Split batches into micro-batches of equally many rows but for one, about `tokens` per side, padding included.

    Each rank gets equally many micro-batches of every batch, as long as there are rows for all.
    A micro-batch stays as wide as its batch: the rows of a batch have similar lengths, and dropout's masks fit both.
    """
    micro_batches = []
    for index, batch in enumerate(batches):
        count = len(batch)
        pieces = min(count, ranks * -(-count * batch.width // (tokens * ranks)))
        edges = [count * piece // pieces for piece in range(pieces + 1)]
        micro_batches += [MicroBatch(index, start, batch.part(start, stop)) for start, stop in pairwise(edges)]
    return micro_batches


class TrainStep:
    """Updates the weights of one model."""

    def __init__(self, model: Model, loss: Loss, config: TrainingConfig, ranks: Ranks = ALONE) -> None:
        self.model, self.loss, self.config, self.ranks = model, loss, config, ranks
        self.device = model.device
        if config.gradient_checkpointing and not model.supports_gradient_checkpointing:
            raise SettingsError("training.gradient_checkpointing: this model has no blocks to recompute; leave it out")
        model.gradient_checkpointing = config.gradient_checkpointing
        if config.compile:
            compile_blocks(model)
        self.optimizer = build_optimizer(model, config)
        self.sharded = is_sharded(model)
        threads = config.threads or 1
        half = config.precision == "bfloat16"
        self._autocast = half and self.device.type != "cpu"
        self.update = build_update(model, self.optimizer, config, self.device)
        overlaps = ranks.world > 1 and self.device.type != "cpu" and not self.sharded
        self._reduction = OverlappedReduction(model) if overlaps else None
        self.workers = Workers(model, 1 if self.sharded or self.device.type != "cpu" else threads)
        twins = [twin for twin in self.workers.models if twin is not model]
        self._sum = GradientSum(model, twins)
        if isinstance(self.optimizer, Muon):
            self.optimizer.parallel = lambda work, parts: self.workers.each(
                lambda _, part: work(part), parts, train=True
            )
            self.optimizer.half = self._autocast
        for each in self.workers.models:
            set_half_products(each, half and not self._autocast)
            if self.device.type == "cpu" and not self.sharded:
                set_sparse_gradients(each)

    def run(
        self, batches: Sequence[Batch], update: int, rate: float, micro_batch_tokens: int
    ) -> StepResult | QueuedResult:
        """Update the weights by the mean gradient over all real tokens, unless it is not finite."""
        tokens = sum(batch.num_target_tokens for batch in batches)
        loss = self._accumulate(self._micro_batches(batches, micro_batch_tokens), update, tokens)
        return self.update(loss, tokens, update, rate)

    def _micro_batches(self, batches: Sequence[Batch], tokens: int) -> list[MicroBatch]:
        """Split batches; a sharded model needs all ranks for every micro-batch, so each rank gets equally many."""
        micro_batches = split_batches(batches, tokens, self.ranks.world)
        if self.sharded:
            micro_batches += [micro_batches[-1]._replace(weight=0.0)] * (-len(micro_batches) % self.ranks.world)
        return micro_batches

    def _accumulate(self, micro_batches: Sequence[MicroBatch], update: int, tokens: int) -> Any:
        """Sum the gradients of all micro-batches, on all threads and ranks; return the summed loss."""
        mine = self.ranks.share(micro_batches)
        self._sum.begin()

        def backward(model: Model, part: int) -> Any:
            self._sum.expect(model, part)
            if self._reduction is not None and part == len(mine) - 1:
                self._reduction.arm()
            try:
                return self._backward(model, micro_batches[mine[part]], update, tokens)
            except BaseException:
                self._sum.abandon()
                raise

        try:
            losses, short = self.workers.each(backward, len(mine), self._sum.finish, train=True), False
        except (MemoryError, RuntimeError) as error:
            if self.ranks.world == 1 or self.sharded or not ran_out_of_memory(error):
                raise
            losses, short = (), True
        if self._reduction is not None:
            self._reduction.finish()
        total = self.update.total(losses, short, self.ranks)
        if self.ranks.world > 1 and self._reduction is None and not self.sharded:
            self._sum_over_ranks()
        return total

    def dry_run(self, batch: Batch, micro_batch_tokens: int) -> None:
        """Go forward and backward through one micro-batch and discard the result, to measure its memory."""
        model = self.workers.models[0].train()
        self._sum.begin()
        self._sum.expect(model, 0)
        last = self.config.updates  # no update takes more than the last
        self._backward(model, split_batches([batch.to(self.device)], micro_batch_tokens)[0], last, tokens=1)
        self._sum.begin()

    def _backward(self, model: Model, part: MicroBatch, update: int, tokens: int) -> Any:
        """Add the gradient of one micro-batch to a model's, and return the loss of its tokens."""
        index, first_row, rows, weight = part
        set_dropout_key(model, DropoutKey(self.config.seed, update, index, first_row))
        if self.device.type != "cpu":
            seed = rng.stream_seed(self.config.seed, update, index, first_row)
            torch.manual_seed(seed)  # torch's dropout draws from its own stream
        r_drop = self.config.r_drop if update > self.config.r_drop_after else 0.0
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._autocast):
            result = self.loss(model, rows, self.config.label_smoothing, r_drop)
        (weight * result.smoothed / tokens).backward()  # type: ignore[no-untyped-call]
        return self.update.loss(result.smoothed.detach(), weight)

    def _sum_over_ranks(self) -> None:
        """Sum the gradients over the ranks; one without a micro-batch adds zero."""
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        for parameter in trained:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.ranks.add_up([parameter.grad for parameter in trained if parameter.grad is not None])


# The sum of gradients over micro-batches.

LARGE = 2**17
"""Values of a parameter whose gradient is not kept until the end of a micro-batch: half a megabyte."""


class GradientSum:
    """Sums the gradients of a model's copies, which several threads compute in parallel, into the model's own `grad`.

    Gradients of large parameters are added and freed as soon as a backward pass has computed them, while they are in
    the cache; small ones together at the end of a micro-batch, since each call from a backward pass into Python takes
    time. All are added in the order of the micro-batches, so that the sum does not depend on which thread was faster.
    """

    def __init__(self, model: nn.Module, twins: Sequence[nn.Module]) -> None:
        self._totals = list(model.parameters())
        self._small = {twin: [p for p in twin.parameters() if p.numel() < LARGE] for twin in (model, *twins)}
        self._next = [0] * len(self._totals)
        """For each parameter, the micro-batch that is added next."""
        self._turn = threading.Condition()
        self._parts: dict[nn.Module, int] = {}
        self._abandoned = False
        self._model, self._twins = model, set(twins)
        for twin in twins:
            for place, parameter in enumerate(twin.parameters()):
                if parameter.requires_grad and parameter.numel() >= LARGE:
                    add = partial(self._add, twin, place)
                    parameter.register_post_accumulate_grad_hook(add)  # type: ignore[no-untyped-call]

    def begin(self) -> None:
        """Start a new sum."""
        self._next, self._abandoned = [0] * len(self._totals), False
        for parameter in self._totals:
            parameter.grad = None
        for twin in self._twins:  # the previous update may have failed half-way
            for parameter in self._small[twin]:
                parameter.grad = None

    def expect(self, twin: nn.Module, number: int) -> None:
        """Set the micro-batch that a copy computes now."""
        self._parts[twin] = number

    def finish(self, twin: nn.Module, number: int) -> None:
        """Add the small gradients, and let the next micro-batch continue where this one had none. Called in order."""
        if twin in self._twins:
            self._add_small(twin)
        with self._turn:
            self._next = [max(turn, number + 1) for turn in self._next]
            self._turn.notify_all()

    def abandon(self) -> None:
        """Release threads that wait for a micro-batch that failed; the sum is useless."""
        with self._turn:
            self._abandoned = True
            self._turn.notify_all()

    def _add_small(self, twin: nn.Module) -> None:
        sums, parts = [], []
        for total, own in zip(self._small[self._model], self._small[twin], strict=True):
            if total.grad is None:
                total.grad = own.grad
            elif own.grad is not None:
                sums.append(total.grad)
                parts.append(own.grad)
            own.grad = None
        if sums:
            torch._foreach_add_(sums, parts)

    def _add(self, twin: nn.Module, place: int, parameter: Tensor) -> None:
        number, total = self._parts[twin], self._totals[place]
        with self._turn:
            self._turn.wait_for(lambda: self._abandoned or self._next[place] == number)
        if total.grad is None:
            total.grad = parameter.grad
        elif parameter.grad is not None and not self._abandoned:
            total.grad += parameter.grad
        parameter.grad = None
        with self._turn:
            self._next[place] = number + 1
            self._turn.notify_all()
