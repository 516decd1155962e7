"""Starts a server: loads the models in processes of their own, listens, and stops in order."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from transduce.config import Table
from transduce.errors import CannotCreate, DataError, MissingInput, SettingsError
from transduce.serving.job import ModelInfo
from transduce.serving.limits import Limits
from transduce.serving.pool import ProcessPool
from transduce.serving.process import Engine, EngineSettings, Precision, ProcessBackend, available_cores
from transduce.storage.layout import CONFIG, JOURNAL, MODEL

MAX_WORKERS = 4
"""Processes of each model, if the operator does not choose: each has a copy of the weights."""

Print = Callable[[str], None]

EXAMPLES: dict[str, tuple[str, Table]] = {
    "translation": ("/v1/translate", {"text": "Hello!"}),
    "language_modeling": ("/v1/generate", {"prompt": "Once upon a time", "max_length": 40}),
    "text_encoding": ("/v1/embed", {"text": "Hello!"}),
}
"""A request that a model of each task answers."""


@dataclass(frozen=True)
class LaunchSettings:
    """What an operator chooses; None stands for a default."""

    folders: Sequence[str]
    host: str = "127.0.0.1"
    port: int = 8000
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    engine: Engine = "torch"
    precision: Precision = "float32"
    workers: int | None = None
    threads: int | None = None
    device: str = "cpu"
    max_queue_tokens: int | None = None
    timeout: float | None = None
    access_log: str | None = None
    studio: bool = True
    """Whether the studio is served at `/`."""
    unfinished_runs: bool = False
    """Whether a folder may be a run without a model; only its training is shown then."""
    on_ready: Callable[[str], None] | None = None
    """Called with the address of the server when it answers."""

    @property
    def limits(self) -> Limits:
        """The limits of the server."""
        usual = Limits()
        return replace(
            usual,
            max_queue_tokens=self.max_queue_tokens or usual.max_queue_tokens,
            timeout=self.timeout or usual.timeout,
        )


def launch(settings: LaunchSettings, print_line: Print) -> None:
    """Serve until a signal; raises TransduceError."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingInput(
            f"serving needs the package {error.name}; install it with `pip install 'transduce[serve]'`"
        ) from None
    _check_exposure(settings)
    _start_logs(settings.access_log)
    asyncio.run(_serve(settings, print_line))


def load_keys(given: Sequence[str], from_environment: str | None, file: str | None) -> tuple[str, ...]:
    """Collect the keys of the command line, the environment and a file with one key per line."""
    keys = [*given, *filter(None, [from_environment])]
    if file is not None:
        try:
            lines = Path(file).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise MissingInput(
                f"{file}: cannot be read ({error.strerror}); give a file with one key per line"
            ) from None
        except UnicodeError:
            raise DataError(f"{file}: is not UTF-8 text; write one key per line") from None
        found = [line.strip() for line in lines if line.strip()]
        if not found:
            raise DataError(f"{file}: has no key; write one key per line")
        keys += found
    if any(not (key and key.isascii() and key.isprintable()) or " " in key for key in keys):
        raise DataError("a key is empty, or not printable ASCII without spaces, so that no header can hold it")
    return tuple(keys)


def model_names(folders: Sequence[str]) -> dict[str, str]:
    """Return the folder of each model by its name: NAME=FOLDER, or the name of the folder."""
    found: dict[str, str] = {}
    for given in folders:
        name, mark, folder = given.partition("=")
        if not mark:
            folder, path = given, Path(given).resolve()
            name = path.parent.name if path.name == "model" else path.name
        if not name or not folder:
            raise SettingsError(f"'{given}' is not NAME=FOLDER; give both, or the folder alone")
        if name in found:
            raise SettingsError(f"two models are called '{name}'; name one of them: NAME={folder}")
        found[name] = folder
    return found


def _check_exposure(settings: LaunchSettings) -> None:
    """Beyond this machine, a key is needed."""
    if not settings.api_keys and not _is_loopback(settings.host):
        raise SettingsError(
            f"--host {settings.host} lets other machines call this server; give keys by --api-key-file, or use "
            "127.0.0.1 behind a proxy"
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _allowed_hosts(settings: LaunchSettings) -> tuple[str, ...]:
    """Names of the server; an address that it is bound to is one: no attacker's name can resolve to it unnoticed."""
    try:
        own = ipaddress.ip_address(settings.host)
    except ValueError:
        return settings.allowed_hosts
    return settings.allowed_hosts if own.is_unspecified else (*settings.allowed_hosts, settings.host)


def _start_logs(access_log: str | None) -> None:
    """Send errors to standard error, and the access log where it belongs; neither has text of requests."""
    server, access = logging.getLogger("transduce.server"), logging.getLogger("transduce.access")
    errors = logging.StreamHandler()
    errors.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    server.addHandler(errors)
    access.propagate = server.propagate = False
    access.setLevel(logging.INFO if access_log else logging.CRITICAL)
    if access_log:
        try:
            access.addHandler(logging.StreamHandler() if access_log == "-" else logging.FileHandler(access_log))
        except OSError as error:
            raise CannotCreate(f"--access-log {access_log}: cannot be written ({error.strerror})") from None


async def _serve(settings: LaunchSettings, print_line: Print) -> None:
    from transduce.serving.app import create_app
    from transduce.serving.security import ServerSettings
    from transduce.serving.server import Server, bind
    from transduce.serving.service import Service

    began, limits = time.monotonic(), settings.limits
    for socket in bind(settings.host, settings.port):  # a port that is taken is found before anything is loaded
        socket.close()
    backends = [
        ProcessPool([ProcessBackend(one) for _ in range(_workers(settings))]) for one in _engine_settings(settings)
    ]
    try:
        for backend in backends:
            await backend.start()
            print_line(_description(backend.info, len(backend.processes)))
        app = create_app(
            Service(backends, limits, model_names(settings.folders)),
            ServerSettings(settings.api_keys, _allowed_hosts(settings), limits, settings.studio),
        )
        server = Server(app, settings.host, settings.port, limits=limits, trusted_proxies=settings.trusted_proxies)
        info = backends[0].info if backends else None
        for line in _instructions(settings, server.port, info, time.monotonic() - began):
            print_line(line)
        if settings.on_ready is not None:
            settings.on_ready(_address(settings, server.port))
        await server.serve()
        print_line("stopped")
    finally:
        await asyncio.gather(*(backend.stop() for backend in backends))


def _workers(settings: LaunchSettings) -> int:
    """Processes of each model: a core each where PyTorch searches on a CPU; CTranslate2 has threads of its own."""
    if settings.workers is not None:
        return settings.workers
    return min(available_cores(), MAX_WORKERS) if settings.engine == "torch" and settings.device == "cpu" else 1


def _engine_settings(settings: LaunchSettings) -> list[EngineSettings]:
    limits = settings.limits
    return [
        EngineSettings(
            folder=folder,
            name=name,
            engine=settings.engine,
            precision=settings.precision,
            device=settings.device,
            threads=settings.threads or max(1, available_cores() // _workers(settings)),
            max_queue_tokens=limits.max_queue_tokens,
            max_active_rows=limits.max_active_rows,
            max_requests=limits.max_requests,
        )
        for name, folder in model_names(settings.folders).items()
        if not (settings.unfinished_runs and _is_unfinished(Path(folder)))
    ]


def _is_unfinished(folder: Path) -> bool:
    """Whether a folder is a run that has no model yet."""
    return (folder / JOURNAL).is_file() and not (folder / MODEL / CONFIG).is_file()


def _description(info: ModelInfo, workers: int) -> str:
    """One line on a model that was loaded."""
    languages = ""
    if info.source_languages or info.target_languages:
        sides = [_few(names) or "?" for names in (info.source_languages, info.target_languages)]
        languages = f", {' → '.join(sides)}"
    return (
        f"loaded {info.name}: {info.task.replace('_', ' ')}{languages}, {info.architecture} with {info.parameters:,} "
        f"parameters, {info.engine} in {info.precision}, {workers} process{'es' * (workers > 1)} with at most "
        f"{info.memory_bytes / 2**30:.1f} GiB of memory{' each' * (workers > 1)}"
    )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def _address(settings: LaunchSettings, port: int) -> str:
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _instructions(settings: LaunchSettings, port: int, info: ModelInfo | None, seconds: float) -> list[str]:
    """What is printed when the server is ready: its address, and a request that works."""
    address = _address(settings, port)
    studio = f"; studio: {address}/" if settings.studio else ""
    ready = f"ready after {seconds:.1f} s: {address} (documentation: {address}/docs{studio})"
    stop = "stop with Ctrl-C; running requests are finished first"
    if info is None:
        return [ready, "no run has a model yet; their training is shown", stop]
    path, example = EXAMPLES[info.task]
    body = dict(example)
    if len(info.target_languages) > 1 and info.default_target is None:
        body["target_language"] = info.target_languages[0]
    key = " -H 'Authorization: Bearer YOUR_KEY'" if settings.api_keys else ""
    data = json.dumps(body)
    return [
        ready,
        f"try: curl {address}{path} -H 'Content-Type: application/json'{key} -d '{data}'",
        stop,
    ]
