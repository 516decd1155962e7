"""`transduce serve` whose models run in `instrumented_worker`, and which counts its tasks and objects on SIGUSR1."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys

from transduce.cli.main import entry
from transduce.serving import launch, process
from transduce.serving.launch import LaunchSettings, Print


def _count() -> None:
    gc.collect()
    print(f"server {len(asyncio.all_tasks())} {len(gc.get_objects())}", file=sys.stderr, flush=True)


async def _counted(settings: LaunchSettings, print_line: Print) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _count)
    await _serve(settings, print_line)


if __name__ == "__main__":
    process.WORKER, process.ISOLATED = "tests.torture.instrumented_worker", ()
    _serve, launch._serve = launch._serve, _counted
    entry()
