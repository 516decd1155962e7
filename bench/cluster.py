"""What more processes give: shards, Ray actors, and replicas of the server, 1, 2 and 4 of each: `make bench-cluster`.

Each process, actor and replica has one thread, in eight bits with CTranslate2, greedy. Shards and actors translate the
same file; lines per second are those between the first and the last block that was finished, so that the seconds of
starting are left out, and *seconds* are those of the whole. Lines per second of processor time say the same on a
machine that is busy with something else. The server gets 32 clients, each of which sends its next
line when the last one is translated, to the replicas in turn. On a machine with two cores four processes show what is
lost by too many. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import importlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

KINDS = ("shards", "actors", "replicas")
COUNTS = (1, 2, 4)
CLIENTS = 32
BLOCK_LINES = 512
BLOCKS = ("--block-lines", str(BLOCK_LINES))
OPTIONS = ("--greedy", "--precision", "int8", "--engine", "ctranslate2", "--threads", "1", "--workers", "1")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
PORT = 18700


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "transduce", *map(str, arguments), "--quiet"]


def cpu_seconds(processes: Iterable[int]) -> float:
    """Processor time that processes have used so far."""
    ticks = 0
    for process in processes:
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def descendants(process: int) -> set[int]:
    """A process and those that it started, and they."""
    children: set[int] = set()
    with suppress(OSError):
        children = set(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))
    return {process}.union(*map(descendants, children))


def ray_actors() -> set[int]:
    """Actors that translate blocks, by the name that Ray gives a process."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().startswith(b"ray::BlockActor"):
                found.add(int(path.parent.name))
    return found


def watch(running: list[subprocess.Popen[bytes]], output: Path, pids: Callable[[], Iterable[int]]) -> dict[str, float]:
    """Wait until commands have ended; return lines per second, and per second of processor time.

    From the first block to the last one that was complete while none of them had ended.
    """
    began, seen = time.monotonic(), list[tuple[float, float, int]]()
    while all(process.poll() is None for process in running):
        count = sum(1 for _ in Path(f"{output}.blocks").glob("*[0-9].json"))
        if count > (seen[-1][2] if seen else 0):
            seen.append((time.monotonic(), cpu_seconds(pids()), count))
        time.sleep(0.02)
    assert [process.wait() for process in running] == [0] * len(running)
    (first, used, one), (last, spent, many) = seen[0], seen[-1]
    lines = BLOCK_LINES * (many - one)
    found = {"lines_per_second": lines / (last - first), "lines_per_cpu_second": lines / (spent - used)}
    return {**found, "seconds": time.monotonic() - began}


def shards(model: Path, source: Path, place: Path, count: int) -> dict[str, float]:
    """Translate in so many processes."""
    output = place / f"shards-{count}"
    translate = command("translate", model, source, "--output", output, *OPTIONS, *BLOCKS)
    running = [
        subprocess.Popen([*translate, "--shard", f"{number}/{count}"], env=ENVIRONMENT)
        for number in range(1, count + 1)
    ]
    return watch(running, output, lambda: [process.pid for process in running])


def actors(model: Path, source: Path, place: Path, count: int, address: str) -> dict[str, float]:
    """Translate by so many actors."""
    output = place / f"actors-{count}"
    line = command("translate", model, source, "--output", output, *OPTIONS, "--ray", address, *BLOCKS)
    running = [subprocess.Popen([*line, "--actors", str(count)], env=ENVIRONMENT)]
    return watch(running, output, ray_actors)


@contextmanager
def cluster(cpus: int) -> Iterator[str]:
    """Start one node of Ray that counts so many processors."""
    utils: Any = importlib.import_module("ray.cluster_utils")
    os.environ.update(ENVIRONMENT)
    found = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": cpus, "include_dashboard": False})
    try:
        yield found.address
    finally:
        found.shutdown()


def replicas(model: Path, lines: list[str], count: int, seconds: float) -> dict[str, float]:
    """Serve by so many servers; return translations per second, and the 95th percentile of their time."""
    with ExitStack() as stack:
        ports, servers = [PORT + number for number in range(count)], list[subprocess.Popen[bytes]]()
        for port in ports:
            line = command("serve", f"m={model}", "--port", str(port), "--threads", "1", "--workers", "1")
            line += ["--engine", "ctranslate2", "--precision", "int8"]
            servers.append(server := subprocess.Popen(line, env=ENVIRONMENT, stdout=subprocess.DEVNULL))
            stack.callback(server.wait)
            stack.callback(server.terminate)
        for port in ports:
            while not _call(port, "GET", "/ready"):
                time.sleep(0.2)
        times: list[float] = []
        texts = itertools.cycle(lines)
        over = time.monotonic() + 1.0 + seconds

        def client(number: int) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", ports[number % count])
            while (began := time.monotonic()) < over:
                body = json.dumps({"text": next(texts), "method": "greedy"})
                connection.request("POST", "/v1/translate", body, {"Content-Type": "application/json"})
                found = connection.getresponse()
                content = found.read()
                assert found.status == 200, content
                if began > over - seconds:  # the first second warms up
                    times.append(time.monotonic() - began)

        threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        time.sleep(max(0.0, over - seconds - time.monotonic()))
        processes = set[int]().union(*(descendants(server.pid) for server in servers))
        used = cpu_seconds(processes)
        for thread in threads:
            thread.join()
        used = cpu_seconds(processes) - used
    times.sort()
    found = {"lines_per_second": len(times) / seconds, "lines_per_cpu_second": len(times) / used}
    return {**found, "p95_seconds": times[int(0.95 * len(times))]}


def _call(port: int, method: str, path: str) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request(method, path)
        return connection.getresponse().status == 200
    except OSError:
        return False


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="run or model folder that CTranslate2 supports")
    parser.add_argument("--source", type=Path, required=True, help="lines to translate, plain or gzip")
    parser.add_argument(
        "--lines", type=int, default=10_240, help="how many of them, from the beginning again if needed"
    )
    parser.add_argument("--seconds", type=float, default=6.0, help="of load on the server")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    given = parser.parse_args()
    opened = gzip.open if given.source.suffix == ".gz" else open
    with opened(given.source, "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in itertools.islice(file, given.lines)]
    results: dict[str, dict[int, Any]] = {kind: {} for kind in given.only}
    ray = cluster(max(COUNTS)) if "actors" in given.only else nullcontext("")
    with tempfile.TemporaryDirectory() as name, ray as address:
        place = Path(name)
        source = place / "source.txt"
        source.write_text(
            "".join(f"{line}\n" for line in itertools.islice(itertools.cycle(lines), given.lines)), "utf-8"
        )
        for count in COUNTS:
            measured: dict[str, Callable[[], dict[str, float]]] = {
                "shards": partial(shards, given.model, source, place, count),
                "actors": partial(actors, given.model, source, place, count, address),
                "replicas": partial(replicas, given.model, lines, count, given.seconds),
            }
            for kind, found in results.items():
                found[count] = measured[kind]()
                print(kind, count, {what: round(value, 3) for what, value in found[count].items()}, flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
