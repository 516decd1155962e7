"""The torch engine: any number of requests in, their hypotheses out, in batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

from transduce.inference.search.options import Hypothesis, Request
from transduce.inference.search.search import Search
from transduce.models.interface import AnyTransducer
from transduce.nn.twin import eval_mode
from transduce.text.tokenizer.special import Specials

WRITTEN_BEHIND = 8
"""Times its tokens that a batch may hold when a language model has written all that it was asked for."""


class TorchEngine:
    """Search on the model itself: the readable reference that other engines are held against.

    As many batches are searched side by side as PyTorch has threads, one thread each: threads inside a small product
    cost more than they give.
    """

    def __init__(self, model: AnyTransducer, source: Specials, target: Specials, tokens_per_batch: int = 4096) -> None:
        self.model, self.source, self.target = model, source, target
        self.tokens_per_batch = tokens_per_batch
        """Tokens that are read before the first is written, openings counted each, that one batch may hold."""

    def translate(self, requests: Sequence[Request]) -> list[list[Hypothesis]]:
        """Return the hypotheses of each request, in the order of the requests."""
        heard = any(request.options.coverage_penalty for request in requests)  # who listens hears all that passes
        on_cpu = self.model.output.weight.device.type == "cpu"
        threads = torch.get_num_threads() if on_cpu and not heard else 1
        batches = list(self._batches(requests, threads))
        with eval_mode(self.model):
            if min(threads, len(batches)) == 1:
                found = [self._search(batch) for batch in batches]
            else:
                with (
                    one_thread_each(),
                    ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
                ):
                    found = list(pool.map(self._search, batches))
        answers = {id: hypotheses for batch in found for id, hypotheses in batch.items()}
        assert len(answers) == len(requests), "every request needs an id of its own"
        return [answers[request.id] for request in requests]

    def _search(self, batch: Sequence[Request]) -> dict[int, list[Hypothesis]]:
        search = Search(self.model, self.source, self.target)
        search.admit(batch)
        found: dict[int, list[Hypothesis]] = {}
        while search.active:
            found |= {result.id: result.checked() for result in search.advance()}
        return found

    def stream(self, request: Request) -> Iterator[tuple[list[int], bool]]:
        """Yield the tokens of the best answer that are certain so far, and whether they are all."""
        search = Search(self.model, self.source, self.target)
        with eval_mode(self.model):
            search.admit([request])
        while search.active:
            with eval_mode(self.model):
                results = search.advance()
                certain = [result.checked()[0].tokens for result in results] or list(search.agreed().values())
            yield certain[0], bool(results)

    def _batches(self, requests: Sequence[Request], threads: int) -> Iterator[list[Request]]:
        """Cut the requests, longest first, into batches of about equal cost that fit, as many for each thread.

        A request too large for any batch stands alone.
        """
        ordered = sorted(requests, key=lambda request: -_tokens_read(request))
        costs = [_cost(request) for request in ordered]
        needed = -(-sum(costs) // self.tokens_per_batch)
        count, total = -(-max(1, needed) // threads) * threads, sum(costs)
        batch: list[Request] = []
        spent, closed, held = 0, 0, 0
        for request, cost in zip(ordered, costs, strict=True):
            if batch and (spent * count >= total * (closed + 1) or held + cost > self.tokens_per_batch):
                yield batch
                batch, held, closed = [], 0, closed + 1
            batch.append(request)
            spent, held = spent + cost, held + cost
        if batch:
            yield batch


def _cost(request: Request) -> int:
    """What a request takes of a batch: the tokens that it reads, openings counted each.

    A language model may be asked for a long text behind a short one, and keeps all of it: so much of it counts that no
    batch holds more than a few times its tokens in the end.
    """
    read = _tokens_read(request) + 1
    kept = 0 if request.first is None else (1 + request.max_total_length) // WRITTEN_BEHIND
    return max(read, kept) * request.options.width


def _tokens_read(request: Request) -> int:
    """How many tokens are read before the first is written."""
    return len(request.source) + len(request.prefix)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Let every operation have one thread, for as long as several of them run side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
