"""The process of one model: jobs come as JSON lines on standard input, answers leave on standard output.

It is started by `process.ProcessBackend`, which also describes the messages. A crash, a native one too, or running out
of memory ends this process and not the server. It ends when its input does, also if the server was killed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, BinaryIO

from transduce.config import Table
from transduce.errors import TransduceError, as_exception, one_line, raised_at
from transduce.serving.caller import CALLER, Caller
from transduce.serving.job import JOB, Job, JobError, Result
from transduce.serving.loading import load_runner
from transduce.serving.process import MAX_LINE, EngineSettings
from transduce.serving.runner import Runner

STATISTICS_INTERVAL = 0.25
"""Seconds between two reports of counters."""
SWITCH_INTERVAL = 0.001
"""Seconds after which a thread that runs Python gives way. A step gives up the interpreter's lock at each operation of
PyTorch and waits this long to get it back while other jobs tokenize: with Python's 5 ms, four such jobs made a step
13 times as long, with 1 ms half of that."""


class Channel:
    """Writes messages, each on a line of its own, from any thread."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._lock = file, threading.Lock()

    def send(self, message: Table) -> None:
        """Write one message; raises JobError if it is too long. If nobody reads any more, the process ends."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if len(line) > MAX_LINE:
            raise JobError("invalid", f"the result has {len(line):,} bytes; send fewer texts, or request less of each")
        with self._lock:
            try:
                self._file.write(line)
                self._file.flush()
            except OSError:
                os._exit(0)


class Worker:
    """Carries out jobs in threads; the schedulers of the runner let them share the model."""

    def __init__(self, runner: Runner, channel: Channel, max_requests: int) -> None:
        self._runner, self._channel = runner, channel
        self._callers: dict[int, Caller] = {}
        self._threads = ThreadPoolExecutor(max_requests, thread_name_prefix="job")

    def receive(self, message: Table) -> None:
        """Begin or cancel a job."""
        number = message["id"]
        if message.get("cancel"):
            caller = self._callers.get(number)
            if caller is not None:
                caller.cancel()
            return
        caller = Caller(message["client"], time.monotonic() + message["timeout"])
        self._callers[number] = caller
        try:
            job = JOB.validate_python(message["job"])
            self._threads.submit(self._carry_out, number, caller, job, message["stream"])
        except Exception as error:
            self._fail(number, error)

    def _carry_out(self, number: int, caller: Caller, job: Job, streams: bool) -> None:
        """Send the messages of a job; whatever happens, the last of them is sent."""
        CALLER.set(caller)
        try:
            caller.check()
            result = self._stream(number, job) if streams else self._runner.run(job)
            self._channel.send({"id": number, "result": result})
            self._callers.pop(number, None)
        except BaseException as error:  # nobody looks at what the future of a thread raises
            self._fail(number, error)

    def _stream(self, number: int, job: Job) -> Result:
        """Send the pieces of a text as they come, and return the result."""
        pieces = self._runner.stream(job)
        while True:
            try:
                piece = next(pieces)
            except StopIteration as end:
                result: Result = end.value
                return result
            self._channel.send({"id": number, "piece": piece})

    def _fail(self, number: int, error: BaseException) -> None:
        """End a job that has no result."""
        self._callers.pop(number, None)
        is_cancelled = isinstance(error, CancelledError)
        end = {"cancelled": True} if is_cancelled else {"error": as_job_error(error).to_json()}
        self._channel.send({"id": number, **end})

    def statistics(self) -> Table:
        """The counters of the engine and of this process."""
        found = replace(self._runner.statistics(), resident_bytes=resident_bytes())
        return asdict(found)

    def report(self) -> None:
        """Send the counters whenever they have changed; never returns."""
        before: Any = None
        while True:
            now = self.statistics()
            if now != before:
                self._channel.send({"statistics": now})
                before = now
            time.sleep(STATISTICS_INTERVAL)


def as_job_error(error: BaseException) -> JobError:
    """What a client is told of an error: the message of an error that is meant for users, and no other."""
    if isinstance(error, JobError):
        return error
    if isinstance(error, TransduceError):
        return JobError("invalid", str(error))
    where = "out of memory" if isinstance(error, MemoryError) else type(error).__name__
    print(f"a job failed: {where} in {raised_at(error)}", file=sys.stderr, flush=True)
    return JobError("failed", "the model failed on this request; others are not affected")


def resident_bytes() -> int:
    """Resident memory of this process; 0 where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _end_process(arguments: threading.ExceptHookArgs) -> None:
    """A scheduler must not die while jobs wait for it: the whole process ends, and the server starts another."""
    threading.__excepthook__(arguments)
    os._exit(70)


def main() -> None:
    """Load the model that the first line describes, then carry out jobs until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when to stop, also after Ctrl-C in a terminal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.excepthook = _end_process
    sys.setswitchinterval(SWITCH_INTERVAL)
    channel = Channel(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # whatever a library prints must not be taken for a message
    messages = os.fdopen(os.dup(0), "rb")
    settings = EngineSettings(**json.loads(messages.readline()))
    try:
        runner, info = load_runner(settings)
    except BaseException as error:
        failure = as_exception(error)
        code = failure.exit_code if isinstance(failure, TransduceError) else 1
        message = (
            str(failure) if isinstance(failure, TransduceError) else f"{type(failure).__name__}: {one_line(failure)}"
        )
        channel.send({"failed": message, "exit_code": code})
        os._exit(1)
    worker = Worker(runner, channel, settings.max_requests)
    gc.collect()
    gc.freeze()  # what is loaded stays: to look through it once more would stop all jobs for a tenth of a second
    channel.send({"ready": info.to_json(), "statistics": worker.statistics()})
    threading.Thread(target=worker.report, name="statistics", daemon=True).start()
    for line in messages:
        worker.receive(json.loads(line))
    os._exit(0)


if __name__ == "__main__":
    main()
