"""Baselines of `bench/serve.py`: plain servers without a scheduler, each a starlette app in a process of its own.

    sequential   our PyTorch engine, one request at a time
    static       our PyTorch engine, batches of what is waiting; rows stay until the longest translation ends
    shrinking    the same, and rows leave when their translation ends; no row joins (as in CTranslate2)
    ctranslate2  CTranslate2 in eight bits, with a window of 10 ms

A batch is closed 10 ms after its first request or when it is full, and answered as a whole. Each baseline has what was
fastest with 32 clients on two cores; `--workers`, `--threads` and `--batch-size` try something else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from torch import Tensor

from transduce.inference.ctranslate2.engine import available_cores
from transduce.inference.ctranslate2.export import library, write_files
from transduce.inference.padding import source_batch
from transduce.inference.search.active_request import ActiveRequest
from transduce.inference.search.batch_group import BatchGroup
from transduce.inference.search.options import Hypothesis, Request, SearchOptions, override_options, saved_options
from transduce.inference.search.search import Search
from transduce.inference.search.strategy import SearchKey
from transduce.inference.torch_engine import TorchEngine
from transduce.model_folder import ModelFolder, load_model

WINDOW = 0.01
"""Seconds that a batch waits for more requests."""

Translate = Callable[[Sequence[str], int], list[str]]
"""(texts, beam size) -> translations."""


@dataclass(frozen=True)
class Settings:
    """How a baseline divides the machine."""

    workers: int
    """Batches that are translated at a time."""
    threads: int
    """Threads of each batch; our engine gives each its share of the batch."""
    batch_size: int


# Batches whose rows stay.


class StaticGroup(BatchGroup):
    """A group in which finished requests keep their rows, and are stepped, until all are finished."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._over: set[int] = set()

    def _done(self, errors: dict[int, Exception]) -> list[bool]:
        ids = [active.request.id for active in self.requests]
        kept = dict(errors)
        done = super()._done(kept)  # a row that goes on after its end may run out of hypotheses, which is no error
        errors |= {index: error for index, error in kept.items() if ids[index] not in self._over}
        new = [is_done and id not in self._over for id, is_done in zip(ids, done, strict=True)]
        self._over |= {id for id, is_new in zip(ids, new, strict=True) if is_new}
        return new

    def _keep(self, kept: list[int], parents: Tensor) -> None:
        everyone = list(range(len(self.requests)))
        super()._keep([] if len(self._over) == len(everyone) else everyone, parents)


class StaticSearch(Search):
    """Search with such groups."""

    def _start(self, key: SearchKey, requests: Sequence[Request], isolated: bool = False) -> None:
        device, limit = self.model.output.weight.device, self.model.max_target
        tokens_BS, allowed_BS = source_batch([request.source for request in requests], self.source, device)
        group = StaticGroup(self.model, self.target, key, isolated)
        state = self.model.start(self.model.encode(tokens_BS, allowed_BS), key.width)
        group.add([ActiveRequest.of(request, self.target, limit) for request in requests], state)
        self.groups.append(group)


class StaticEngine(TorchEngine):
    """The PyTorch engine with such a search."""

    def _search(self, batch: Sequence[Request]) -> dict[int, list[Hypothesis]]:
        search = StaticSearch(self.model, self.source, self.target)
        search.admit(batch)
        found: dict[int, list[Hypothesis]] = {}
        while search.active:
            found |= {result.id: result.checked() for result in search.advance()}
        return found


# What translates a batch of texts.


def options_of(contents: ModelFolder, beam_size: int) -> SearchOptions:
    """The model's own options, with a beam or greedy."""
    saved = saved_options(contents.notes.get("search", {}))
    return override_options(saved, **({"method": "greedy"} if beam_size == 1 else {"beam_size": beam_size}))


def torch_translate(contents: ModelFolder, engine: TorchEngine) -> Translate:
    source, target = contents.source_tokenizer, contents.target_tokenizer
    options = {beam_size: options_of(contents, beam_size) for beam_size in (1, 5)}

    def translate(texts: Sequence[str], beam_size: int) -> list[str]:
        requests = [Request(id, source.encode(text), options[beam_size]) for id, text in enumerate(texts)]
        return [target.decode(best.tokens) for best, *_ in engine.translate(requests)]

    return translate


def ctranslate2_translate(contents: ModelFolder, settings: Settings) -> Translate:
    source, target = contents.source_tokenizer, contents.target_tokenizer
    with tempfile.TemporaryDirectory() as folder:
        write_files(contents, Path(folder), "int8", None)
        translator = library().Translator(folder, device="cpu", inter_threads=settings.workers, intra_threads=1)
    pieces = {piece: token for token, piece in enumerate(target.vocabulary)}
    options = options_of(contents, 5)

    def translate(texts: Sequence[str], beam_size: int) -> list[str]:
        sources = [[source.vocabulary[token] for token in source.encode(text)] for text in texts]
        found = translator.translate_batch(
            sources,
            beam_size=beam_size,
            length_penalty=options.length_penalty if beam_size > 1 else 0.0,
            max_decoding_length=max(map(len, sources)) + options.max_extra,
            max_input_length=0,
            max_batch_size=-(-settings.batch_size // settings.workers),  # so that no worker of the library is idle
        )
        return [target.decode([pieces[piece] for piece in result.hypotheses[0]]) for result in found]

    return translate


# Batches of what is waiting.


@dataclass(frozen=True)
class Waiting:
    """A request without its answer."""

    text: str
    beam_size: int
    answer: asyncio.Future[str]


class Batcher:
    """Workers that take what is waiting, all requests of a batch with the same beam size."""

    def __init__(self, translate: Translate, settings: Settings, window: float) -> None:
        self._translate, self._batch_size, self._window = translate, settings.batch_size, window
        self._waiting: deque[Waiting] = deque()
        self._arrived = threading.Condition()
        self._loop = asyncio.get_running_loop()
        for _ in range(settings.workers):
            threading.Thread(target=self._work, args=(settings.threads,), daemon=True).start()

    async def __call__(self, text: str, beam_size: int) -> str:
        """Translate one text."""
        answer: asyncio.Future[str] = self._loop.create_future()
        with self._arrived:
            self._waiting.append(Waiting(text, beam_size, answer))
            if len(self._waiting) in (1, self._batch_size):
                self._arrived.notify()
        return await answer

    def _work(self, threads: int) -> None:
        torch.set_num_threads(threads)
        while True:
            batch = self._take()
            try:
                answers: list[str] = self._translate([one.text for one in batch], batch[0].beam_size)
            except Exception as error:
                self._loop.call_soon_threadsafe(_fail, batch, error)
            else:
                self._loop.call_soon_threadsafe(_answer, batch, answers)

    def _take(self) -> list[Waiting]:
        """Wait for a request, then for more until the window ends or the batch is full."""
        with self._arrived:
            while True:
                self._arrived.wait_for(lambda: self._waiting)
                until = time.monotonic() + self._window
                while len(self._waiting) < self._batch_size and (left := until - time.monotonic()) > 0:
                    self._arrived.wait(left)
                if self._waiting:  # another worker may have taken all
                    break
            batch = [self._waiting.popleft()]
            while self._waiting and len(batch) < self._batch_size and self._waiting[0].beam_size == batch[0].beam_size:
                batch.append(self._waiting.popleft())
            if self._waiting:
                self._arrived.notify()
            return batch


def _answer(batch: Sequence[Waiting], answers: Sequence[str]) -> None:
    for one, text in zip(batch, answers, strict=True):
        if not one.answer.done():
            one.answer.set_result(text)


def _fail(batch: Sequence[Waiting], error: Exception) -> None:
    for one in batch:
        if not one.answer.done():
            one.answer.set_exception(error)


# The server.


def best_settings(system: str, cores: int) -> Settings:
    """What was fastest."""
    return {
        "sequential": Settings(1, 1, 1),
        "static": Settings(1, cores, 32),
        "shrinking": Settings(1, cores, 32),
        "ctranslate2": Settings(cores, 1, 32),
    }[system]


def application(folder: Path, system: str, settings: Settings) -> Starlette:
    """The app of a baseline."""
    contents = load_model(folder)
    contents.transducer.freeze()
    specials = contents.source_tokenizer.specials, contents.target_tokenizer.specials
    run: Batcher | None = None

    async def start() -> None:
        nonlocal run
        if system == "ctranslate2":
            translate = ctranslate2_translate(contents, settings)
        else:
            engine = (StaticEngine if system == "static" else TorchEngine)(contents.transducer, *specials)
            translate = torch_translate(contents, engine)
        run = Batcher(translate, settings, 0.0 if system == "sequential" else WINDOW)
        await run("a", 1)

    async def translate(request: HttpRequest) -> JSONResponse:
        assert run is not None, "the bench waits until it is ready"
        table = json.loads(await request.body())
        return JSONResponse({"text": await run(table["text"], table.get("beam_size", 1))})

    async def ready(_: HttpRequest) -> PlainTextResponse:
        if run is None:
            await start()
        return PlainTextResponse("ready")

    return Starlette(routes=[Route("/v1/translate", translate, methods=["POST"]), Route("/ready", ready)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("system", choices=["sequential", "static", "shrinking", "ctranslate2"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cores", type=int, default=available_cores())
    parser.add_argument("--workers", type=int, help="batches that are translated at a time")
    parser.add_argument("--threads", type=int, help="threads of each batch")
    parser.add_argument("--batch-size", type=int)
    given = parser.parse_args()
    best = best_settings(given.system, given.cores)
    settings = Settings(
        given.workers or best.workers, given.threads or best.threads, given.batch_size or best.batch_size
    )
    torch.set_num_threads(settings.threads)
    app = application(given.folder, given.system, settings)
    uvicorn.run(app, port=given.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
