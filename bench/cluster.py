"""What more processes give: shards, Ray actors, and replicas of the server, 1, 2 and 4 of each: `make bench-cluster`.

Each process, actor and replica has one thread, in eight bits with CTranslate2, greedy. Shards and actors translate the
same file; lines per second are those between the first and the last block that was finished, so that the seconds of
starting are left out, and *seconds* are those of the whole. The server gets 32 clients, each of which sends its next
line when the last one is translated, to the replicas in turn. On a machine with two cores four processes show what is
lost by too many. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from transduce.inference.jobs.block_folder import BlockFolder

COUNTS = (1, 2, 4)
CLIENTS = 32
BLOCK_LINES = 512
BLOCKS = ("--block-lines", str(BLOCK_LINES))
OPTIONS = ("--greedy", "--precision", "int8", "--engine", "ctranslate2", "--threads", "1", "--workers", "1")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
PORT = 18700


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "transduce", *map(str, arguments), "--quiet"]


def speed(folder: BlockFolder) -> float:
    """Lines per second between the first and the last block of a folder."""
    ends = sorted((folder.manifest(block.number).stat().st_mtime, block.lines) for block in folder.blocks)
    return sum(lines for _, lines in ends[1:]) / (ends[-1][0] - ends[0][0])


def shards(model: Path, source: Path, place: Path, count: int) -> dict[str, float]:
    """Translate in so many processes."""
    output, began = place / f"shards-{count}", time.monotonic()
    running = [
        subprocess.Popen(
            command("translate", model, source, "--output", output, *OPTIONS, "--shard", f"{number}/{count}", *BLOCKS),
            env=ENVIRONMENT,
        )
        for number in range(1, count + 1)
    ]
    assert [process.wait() for process in running] == [0] * count
    seconds = time.monotonic() - began
    return {"lines_per_second": speed(BlockFolder(str(output))), "seconds": seconds}


def actors(model: Path, source: Path, place: Path, count: int, address: str) -> dict[str, float]:
    """Translate by so many actors; the folder of blocks is watched, because it is removed at the end."""
    output, began = place / f"actors-{count}", time.monotonic()
    line = command("translate", model, source, "--output", output, *OPTIONS, "--ray", address, *BLOCKS)
    line += ["--actors", str(count)]
    process = subprocess.Popen(line, env=ENVIRONMENT)
    seen: dict[str, float] = {}
    while process.poll() is None:
        for path in Path(f"{output}.blocks").glob("*[0-9].json"):
            seen.setdefault(path.name, time.monotonic())
        time.sleep(0.01)
    assert process.returncode == 0
    seconds = time.monotonic() - began
    ends = sorted(seen.values())
    return {"lines_per_second": BLOCK_LINES * (len(ends) - 1) / (ends[-1] - ends[0]), "seconds": seconds}


@contextmanager
def cluster(cpus: int) -> Iterator[str]:
    """Start one node of Ray that counts so many processors."""
    from ray.cluster_utils import Cluster

    os.environ.update(ENVIRONMENT)
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": cpus, "include_dashboard": False})
    try:
        yield found.address
    finally:
        found.shutdown()


def replicas(model: Path, lines: list[str], count: int, seconds: float) -> dict[str, float]:
    """Serve by so many servers; return translations per second, and the 95th percentile of their time."""
    with ExitStack() as stack:
        ports = [PORT + number for number in range(count)]
        for port in ports:
            line = command("serve", f"m={model}", "--port", str(port), "--threads", "1", "--workers", "1")
            line += ["--engine", "ctranslate2", "--precision", "int8"]
            server = subprocess.Popen(line, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
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
        for thread in threads:
            thread.join()
    times.sort()
    return {"lines_per_second": len(times) / seconds, "p95_seconds": times[int(0.95 * len(times))]}


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
    given = parser.parse_args()
    opened = gzip.open if given.source.suffix == ".gz" else open
    with opened(given.source, "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in itertools.islice(file, given.lines)]
    results: dict[str, dict[int, Any]] = {"shards": {}, "actors": {}, "replicas": {}}
    with tempfile.TemporaryDirectory() as name, cluster(max(COUNTS)) as address:
        place = Path(name)
        source = place / "source.txt"
        source.write_text(
            "".join(f"{line}\n" for line in itertools.islice(itertools.cycle(lines), given.lines)), "utf-8"
        )
        for count in COUNTS:
            results["shards"][count] = shards(given.model, source, place, count)
            results["actors"][count] = actors(given.model, source, place, count, address)
            results["replicas"][count] = replicas(given.model, lines, count, given.seconds)
            for kind, found in results.items():
                print(kind, count, {what: round(value, 3) for what, value in found[count].items()}, flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
