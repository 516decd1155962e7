"""The plain torch contenders of bench/time_to_quality.py: torch.nn.Transformer, and our recipe without our engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from quality_curve import Curve
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from transduce.data.batching import PairBatch, collate
from transduce.data.order import BatchSampler, Position
from transduce.data.prepared import Prepared
from transduce.data.store import PairStore
from transduce.nn.position import sinusoids
from transduce.rng import Rows

PLACES = 512
"""Positions, more than any sentence has tokens."""
NO_LIMIT = 2**40
"""More tokens than any batch has."""


@dataclass(frozen=True)
class Plain:
    """A model and its training, in torch's own parts."""

    model: Literal["torch_nn", "pre_norm"]
    dim: int
    ffn: int
    heads: int
    layers: int
    dropout: float
    optimizer: Literal["adam", "muon"]
    rate: float
    betas: tuple[float, float]
    epsilon: float
    schedule: Literal["constant", "inverse_sqrt", "linear"]
    warmup: float
    """Updates, or their fraction if below 1."""
    epochs: float
    batch_tokens: int | None
    """Tokens of an update; None for batches of `batch_rows` sentences in random order."""
    batch_rows: int | None
    smoothing: float
    max_grad_norm: float
    bfloat16: bool


class TorchNn(nn.Module):
    """torch.nn.Transformer with embeddings, as in PyTorch's translation tutorial: source, target and output untied."""

    def __init__(self, plain: Plain, vocabulary: int) -> None:
        super().__init__()
        self.core = nn.Transformer(
            plain.dim, plain.heads, plain.layers, plain.layers, plain.ffn, plain.dropout, batch_first=True
        )
        self.source, self.target = nn.Embedding(vocabulary, plain.dim), nn.Embedding(vocabulary, plain.dim)
        self.output, self.dropout = nn.Linear(plain.dim, vocabulary), nn.Dropout(plain.dropout)
        self.register_buffer("places", sinusoids(PLACES, plain.dim).float(), persistent=False)
        self.scale = math.sqrt(plain.dim)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight)

    def forward(self, batch: PairBatch) -> Tensor:
        """(B T V)."""
        entered = batch.target[:, :-1]
        padding = ~batch.source_allowed
        hidden = self.core(
            self._embedded(self.source, batch.source),
            self._embedded(self.target, entered),
            tgt_mask=torch.ones(entered.shape[1], entered.shape[1], dtype=torch.bool).triu(1),
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        scores: Tensor = self.output(hidden)
        return scores

    def _embedded(self, table: nn.Module, tokens: Tensor) -> Tensor:
        places = self.get_buffer("places")[: tokens.shape[1]]
        embedded: Tensor = self.dropout(table(tokens) * self.scale + places)
        return embedded


class Attention(nn.Module):
    """Multi-head attention by torch's fused kernel."""

    def __init__(self, plain: Plain) -> None:
        super().__init__()
        self.heads = plain.heads
        self.query, self.key, self.value, self.out = (nn.Linear(plain.dim, plain.dim, bias=False) for _ in range(4))

    def forward(self, query: Tensor, memory: Tensor, allowed: Tensor | None) -> Tensor:
        """(B Q D), (B M D) -> (B Q D); without `allowed`, causal."""
        rows, _, dim = query.shape
        q, k, v = (
            layer(each).view(rows, -1, self.heads, dim // self.heads).transpose(1, 2)
            for layer, each in ((self.query, query), (self.key, memory), (self.value, memory))
        )
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, is_causal=allowed is None)
        mixed: Tensor = self.out(seen.transpose(1, 2).reshape(rows, -1, dim))
        return mixed


class Block(nn.Module):
    """A pre-norm block of an encoder, or with a memory of a decoder."""

    def __init__(self, plain: Plain, decoder: bool) -> None:
        super().__init__()
        self.attention, self.cross = Attention(plain), Attention(plain) if decoder else None
        self.up, self.down = nn.Linear(plain.dim, plain.ffn), nn.Linear(plain.ffn, plain.dim)
        self.norms = nn.ModuleList(nn.LayerNorm(plain.dim) for _ in range(3 if decoder else 2))
        self.dropout = nn.Dropout(plain.dropout)

    def forward(self, x: Tensor, allowed: Tensor | None, memory: Tensor | None, memory_allowed: Tensor) -> Tensor:
        normed = self.norms[0](x)
        x = x + self.dropout(self.attention(normed, normed, allowed))
        if self.cross is not None and memory is not None:
            x = x + self.dropout(self.cross(self.norms[1](x), memory, memory_allowed))
        inner = F.relu(self.up(self.norms[-1](x)))
        mixed: Tensor = x + self.dropout(self.down(inner))
        return mixed


class PreNorm(nn.Module):
    """Our default model for this corpus, written out: pre-norm, all embeddings tied."""

    def __init__(self, plain: Plain, vocabulary: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, plain.dim)
        self.encoder = nn.ModuleList(Block(plain, decoder=False) for _ in range(plain.layers))
        self.decoder = nn.ModuleList(Block(plain, decoder=True) for _ in range(plain.layers))
        self.norms = nn.ModuleList(nn.LayerNorm(plain.dim) for _ in range(2))
        self.dropout, self.scale = nn.Dropout(plain.dropout), math.sqrt(plain.dim)
        self.register_buffer("places", sinusoids(PLACES, plain.dim).float(), persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() > 1 and name != "table.weight":
                nn.init.xavier_uniform_(weight)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)
        nn.init.normal_(self.table.weight, std=plain.dim**-0.5)

    def forward(self, batch: PairBatch) -> Tensor:
        """(B T V)."""
        allowed = batch.source_allowed[:, None, None]
        memory = self._embedded(batch.source)
        for block in self.encoder:
            memory = block(memory, allowed, None, allowed)
        memory = self.norms[0](memory)
        hidden = self._embedded(batch.target[:, :-1])
        for block in self.decoder:
            hidden = block(hidden, None, memory, allowed)
        return F.linear(self.norms[1](hidden), self.table.weight)

    def _embedded(self, tokens: Tensor) -> Tensor:
        places = self.get_buffer("places")[: tokens.shape[1]]
        embedded: Tensor = self.dropout(self.table(tokens) * self.scale + places)
        return embedded


def build(plain: Plain, vocabulary: int) -> nn.Module:
    return TorchNn(plain, vocabulary) if plain.model == "torch_nn" else PreNorm(plain, vocabulary)


def optimizers(model: nn.Module, plain: Plain) -> list[torch.optim.Optimizer]:
    """Adam, or Muon for the matrices inside blocks with AdamW for the rest."""
    inside = {
        id(weight) for name, weight in model.named_parameters() if weight.dim() == 2 and name.startswith(("en", "de"))
    }
    muon = [weight for weight in model.parameters() if id(weight) in inside and plain.optimizer == "muon"]
    others = [weight for weight in model.parameters() if not any(weight is one for one in muon)]
    adam = torch.optim.AdamW(
        others, lr=plain.rate, betas=plain.betas, eps=plain.epsilon, weight_decay=0.0, fused=plain.model == "pre_norm"
    )
    if not muon:
        return [adam]
    return [adam, torch.optim.Muon(muon, lr=plain.rate, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")]


def factor(plain: Plain, updates: int) -> Callable[[int], float]:
    """The learning rate of an update, counted from 0, over its peak."""
    warmup = plain.warmup * updates if plain.warmup < 1 else plain.warmup
    shapes: dict[str, Callable[[int], float]] = {
        "constant": lambda update: 1.0,
        "inverse_sqrt": lambda update: math.sqrt(warmup / update),
        "linear": lambda update: max(0.0, 1 - (update - warmup - 1) / max(1.0, updates - warmup)),
    }
    return lambda done: (done + 1) / warmup if done + 1 <= warmup else shapes[plain.schedule](done + 1)


def batches_of(plain: Plain, train: PairStore, seed: int) -> BatchSampler:
    """The batches: by tokens, or of so many sentences in random order, which a bucket as large as a batch gives."""
    if plain.batch_tokens is not None:
        return BatchSampler.of(train, plain.batch_tokens, seed)
    rows = plain.batch_rows
    assert rows is not None
    return BatchSampler.of(train, NO_LIMIT, seed, bucket_size=rows, max_rows=rows)


def validation_loss(prepared: Prepared, logits: Callable[[PairBatch], Tensor]) -> float:
    """The summed loss of all validation tokens, in float32."""
    store, specials = prepared.validation, prepared.target_tokenizer.specials
    assert isinstance(store, PairStore)
    total = 0.0
    sampler = BatchSampler.of(store, 4096, seed=0)
    with torch.no_grad():
        for rows in sampler.epoch(0):
            batch = collate(store, rows, specials, specials)
            wanted = batch.target[:, 1:].reshape(-1)
            total += float(
                F.cross_entropy(logits(batch).float().flatten(0, 1), wanted, ignore_index=specials.pad, reduction="sum")
            )
    return total


class PlainRun:
    """The usual training loop, which validates and saves after every epoch."""

    def __init__(self, plain: Plain, prepared: Prepared, folder: Path, seed: int) -> None:
        torch.manual_seed(seed)
        self.plain, self.prepared, self.path = plain, prepared, folder / "plain.safetensors"
        train = prepared.train
        assert isinstance(train, PairStore)
        self.train = train
        self.model = build(plain, prepared.target_tokenizer.size)
        self.optimizers = optimizers(self.model, plain)
        self.sampler = batches_of(plain, train, seed)
        self.per_epoch = self.sampler.batches_in_epoch(0)
        self.updates = max(1, round(plain.epochs * self.per_epoch))
        self.done, self.position = 0, Position()
        if self.path.exists():
            self._restore()
            torch.manual_seed(seed + self.done)
        rate = factor(plain, self.updates)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["initial_lr"] = plain.rate
        last = self.done - 1
        self.schedules = [LambdaLR(optimizer, rate, last_epoch=last) for optimizer in self.optimizers]

    def run(self, curve: Curve, bits: Callable[[float], float], over: Callable[[float], bool]) -> None:
        """Train until the last update, or until `over(bits)` says after a validation that it is enough."""
        curve.begin(self.done)
        for position, batch in self._batches():
            if self.done >= self.updates:
                break
            self.model.train()
            self._update(batch)
            self.done, self.position = self.done + 1, position
            curve.updated(self.done)
            if self.done % self.per_epoch == 0 or self.done == self.updates:
                self.model.eval()
                found = bits(validation_loss(self.prepared, self.model))
                curve.validated(self.done, found)
                self._save()
                if over(found):
                    break

    def _batches(self) -> Iterator[tuple[Position, PairBatch]]:
        specials = self.prepared.target_tokenizer.specials
        following: Iterator[tuple[Position, Rows]] = self.sampler.starting(self.position)
        for position, rows in following:
            yield position, collate(self.train, rows, specials, specials)

    def _update(self, batch: PairBatch) -> None:
        pad, plain = self.prepared.target_tokenizer.specials.pad, self.plain
        with torch.autocast("cpu", torch.bfloat16, enabled=plain.bfloat16):
            logits = self.model(batch).flatten(0, 1)
            loss = F.cross_entropy(
                logits.float(), batch.target[:, 1:].reshape(-1), ignore_index=pad, label_smoothing=plain.smoothing
            )
        self.model.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if plain.max_grad_norm:
            nn.utils.clip_grad_norm_(self.model.parameters(), plain.max_grad_norm)
        for optimizer, schedule in zip(self.optimizers, self.schedules, strict=True):
            optimizer.step()
            schedule.step()

    def _save(self) -> None:
        tensors = {f"model/{name}": weight.detach() for name, weight in self.model.named_parameters()}
        for number, optimizer in enumerate(self.optimizers):
            for index, state in optimizer.state_dict()["state"].items():
                tensors |= {f"state/{number}/{index}/{name}": value for name, value in state.items()}
        tensors["progress"] = torch.tensor([self.done, *self.position])
        temporary = self.path.with_suffix(".new")
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary)
        temporary.replace(self.path)

    def _restore(self) -> None:
        tensors = load_file(self.path)
        for name, weight in self.model.named_parameters():
            weight.data.copy_(tensors[f"model/{name}"])
        for number, optimizer in enumerate(self.optimizers):
            saved: dict[int, dict[str, Any]] = {}
            for key, tensor in tensors.items():
                if key.startswith(f"state/{number}/"):
                    _, _, index, name = key.split("/")
                    saved.setdefault(int(index), {})[name] = tensor
            optimizer.load_state_dict({**optimizer.state_dict(), "state": saved})
        self.done, *place = tensors["progress"].tolist()
        self.position = Position(*place)
