"""`transduce translate --ray`: one actor of Ray Core for each share of the cluster's processors or GPUs.

Between processes go the numbers of blocks, how many lines they have, the command's options as JSON, and messages:
integers and strings. (Ray carries them by pickle, like everything between its own processes.) Text and translations
stay in files, on storage that all nodes share.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce import __version__
from transduce.cli.terminal import is_quiet, note
from transduce.errors import MissingInput, SettingsError, TransduceError, one_line
from transduce.inference.jobs.dispatch import Event, dispatch

if TYPE_CHECKING:
    from transduce.cli.progress import Follower
    from transduce.inference.segment import TranslationCounts

PATHS = ("run", "terms", "shortlist", "image_folder")
"""Options that name files, which actors resolve in another folder."""
WAIT_NOTE_SECONDS = 30.0
"""Between two notes that there is no room for actors."""
CONNECT_SECONDS = 10.0


class BlockActor:
    """Translates blocks with a model that is loaded once. Errors are returned: code and message."""

    def __init__(self, file: str, output: str, options: str, threads: int) -> None:
        self._given = file, output, json.loads(options), threads
        self._translator: Any = None

    def load(self) -> list[int | str]:
        """Load the model and open the folder of blocks."""
        return self._returned(self._load)

    def translate(self, number: int) -> list[int | str]:
        """Translate a block; return its lines."""
        return self._returned(lambda: self._translate(number))

    def _load(self) -> int:
        import torch

        from transduce.cli.cluster import open_blocks
        from transduce.cli.translate import make_job
        from transduce.inference.jobs.shards import BlockTranslator

        file, output, options, threads = self._given
        if (version := options.pop("version")) != __version__:
            raise SettingsError(f"has transduce {__version__}, not {version}; install the same version on all nodes")
        if not Path(f"{output}.blocks").is_dir():
            raise MissingInput(f"{output}.blocks: does not exist there; put the output on storage that all nodes share")
        torch.set_num_threads(threads)  # Ray sets OMP_NUM_THREADS by the processors of an actor, or to 1
        job = make_job(file, "text", options)
        self._folder = open_blocks(job, file, output, options)
        self._translator = BlockTranslator(job, self._folder)
        return 0

    def _translate(self, number: int) -> int:
        from transduce.errors import Busy

        if self._translator.translate([number], _Nobody()):
            raise Busy(f"another process is translating block {number}")
        return self._folder.blocks[number].lines

    @staticmethod
    def _returned(work: Any) -> list[int | str]:
        import click

        try:
            return [0, work(), ""]
        except TransduceError as error:
            return [error.exit_code, 0, f"{os.uname().nodename}: {error}"]
        except click.ClickException as error:
            return [error.exit_code, 0, f"{os.uname().nodename}: {error.format_message()}"]


class _Nobody:
    """Observes a block of an actor; the driver reports."""

    def resumed(self, segments: int) -> None: ...
    def calibrated(self, parallelism: Any, ctranslate2: bool) -> None: ...
    def started(self, read: int) -> None: ...
    def wrote(self, lines: int, read: int) -> None: ...


@dataclass(frozen=True)
class Share:
    """What an actor reserves."""

    cpus: int
    gpus: int

    def fit(self, resources: dict[str, float]) -> int:
        """Return how many actors fit a node."""
        room = resources.get("CPU", 0.0) // self.cpus
        return int(min(room, resources.get("GPU", 0.0) // self.gpus) if self.gpus else room)


class RayCluster:
    """Actors of Ray, as `dispatch` sees them."""

    def __init__(self, ray: Any, share: Share, arguments: tuple[str, str, str, int]) -> None:
        environment = {"OMP_NUM_THREADS": str(arguments[3])}
        self._ray, self._arguments = ray, arguments
        self._actor = ray.remote(BlockActor).options(
            num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=0, runtime_env={"env_vars": environment}
        )
        self._numbers = itertools.count()
        self._actors: dict[int, Any] = {}
        self._waiting: dict[Any, tuple[int, bool]] = {}

    def start(self) -> int:
        number = next(self._numbers)
        self._actors[number] = self._actor.remote(*self._arguments)
        self._waiting[self._actors[number].load.remote()] = number, False
        return number

    def translate(self, worker: int, block: int) -> None:
        self._waiting[self._actors[worker].translate.remote(block)] = worker, True

    def wait(self, seconds: float) -> list[Event]:
        if not self._waiting:
            time.sleep(seconds)
            return []
        done, _ = self._ray.wait(list(self._waiting), num_returns=1, timeout=seconds)
        return [self._event(reference) for reference in done]

    def _event(self, reference: Any) -> Event:
        worker, translated = self._waiting.pop(reference)
        try:
            code, lines, message = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:  # the actor, its process or its node is gone, or it has a bug
            with contextlib.suppress(Exception):
                self._ray.kill(self._actors[worker])
            del self._actors[worker]
            return Event(worker, "lost", message=one_line(error))
        if code:
            return Event(worker, "failed", code=code, message=message)
        return Event(worker, "done" if translated else "ready", lines)


class _Progress:
    """Shows blocks as they are finished, and why nothing happens."""

    def __init__(self, follower: Follower, done: int) -> None:
        self._follower, self._done, self._noted = follower, done, time.monotonic()
        follower.started(done)

    def finished(self, lines: int) -> None:
        self._done += lines
        self._follower.wrote(lines, self._done)

    def lost(self, message: str) -> None:
        note(f"an actor was lost, and another takes its block: {message}")

    def waiting(self, working: int, starting: int) -> None:
        if starting and not working and time.monotonic() - self._noted > WAIT_NOTE_SECONDS:
            note(f"waiting for {starting} actors to start; `ray status` shows what the cluster is busy with")
            self._noted = time.monotonic()


def translate_by_ray(file: str, output: str, options: dict[str, Any]) -> TranslationCounts:
    """Translate a file on a Ray cluster and merge it; return the counts of its lines."""
    from transduce.cli.cluster import open_blocks
    from transduce.cli.progress import following
    from transduce.cli.translate import make_job
    from transduce.inference.jobs.merge import merge

    file, output, options = _absolute(file, output, options)
    with _connected(options["ray"]) as ray:
        share, options = _share(ray, options)
        # A machine without a GPU can make the plan of a cluster with GPUs.
        job = make_job(file, "text", {**options, "device": "cpu"})
        folder = open_blocks(job, file, output, options)
        left = [block.number for block in folder.blocks if not folder.is_complete(block.number)]
        done = sum(block.lines for block in folder.blocks) - sum(folder.blocks[number].lines for number in left)
        if len(left) < len(folder.blocks):
            note(f"complete before: {len(folder.blocks) - len(left):,} of {len(folder.blocks):,} blocks")
        count = min(_count(ray, share, options["actors"]), len(left))
        note(f"actors: {count}, of {share.cpus} CPU{'s' * (share.cpus > 1)}{' and a GPU' * share.gpus} each")
        given = json.dumps({**options, "version": __version__})
        cluster = RayCluster(ray, share, (file, output, given, options["threads"]))
        with following(done + sum(folder.blocks[number].lines for number in left), "line") as follower:
            dispatch(cluster, left, count, _Progress(follower, done))
    return merge(output, remove=True).counts


def _absolute(file: str, output: str, options: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Return paths as every process finds them."""
    paths = {name: str(Path(options[name]).absolute()) for name in PATHS if options[name] is not None}
    ensemble = [str(Path(name).absolute()) for name in options["ensemble"]]
    return str(Path(file).absolute()), str(Path(output).absolute()), {**options, **paths, "ensemble": ensemble}


@contextlib.contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Connect to a cluster, or with "local" start one here, which ends with the command."""
    os.environ.setdefault(
        "RAY_USAGE_STATS_ENABLED", "0"
    )  # otherwise a cluster that is started here reports to its makers
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise SettingsError("--ray needs the package ray; install it with `pip install 'transduce[ray]'`") from None
    _check_address(address)
    before = signal.getsignal(signal.SIGTERM) if threading.current_thread() is threading.main_thread() else None
    try:
        local = {"include_dashboard": False} if address == "local" else {}
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=not is_quiet(), **local)
    except Exception as error:  # of many kinds; a node that does not start in time is a bare Exception
        raise MissingInput(f"--ray {address}: cannot be reached ({one_line(error)}); see `ray status`") from None
    try:
        if before is not None:
            signal.signal(signal.SIGTERM, before)  # Ray has replaced it
        yield ray
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Raise if nothing listens at host:port; Ray would try again for minutes."""
    host, colon, port = address.rpartition(":")
    if address in ("auto", "local"):
        return
    if not (colon and host and port.isdecimal()) or "/" in host:
        raise SettingsError(f"--ray {address}: must be auto, local, or host:port of the head node")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise MissingInput(
            f"--ray {address}: cannot be reached ({one_line(error)}); is the head node running?"
        ) from None


def _share(ray: Any, options: dict[str, Any]) -> tuple[Share, dict[str, Any]]:
    """Return what an actor reserves, and the options with the device, threads and workers that it uses.

    A worker and a thread unless given: an actor that took all cores of its machine would take those of the others.
    """
    threads, workers, device = options["threads"] or 1, options["workers"] or 1, options["device"]
    has_gpu = ray.cluster_resources().get("GPU", 0.0) >= 1.0
    if device == "cuda" or (device == "auto" and has_gpu):
        return Share(threads, 1), {**options, "device": "cuda", "engine": "torch", "threads": threads}
    return Share(threads * workers, 0), {**options, "device": "cpu", "threads": threads, "workers": workers}


def _count(ray: Any, share: Share, given: int | None) -> int:
    """Return the number of actors; by default as many as fit the nodes."""
    if given is not None:
        return given
    found = sum(share.fit(node["Resources"]) for node in ray.nodes() if node["Alive"])
    if not found:
        wanted = f"{share.cpus} CPUs" + " and a GPU" * share.gpus
        raise SettingsError(
            f"--ray: no node has {wanted}; lower --threads or --workers, or give --actors to wait for one"
        )
    return found
