"""A studio in a process of its own and the browser that opens it, for tests and for `make bench-studio`."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MISSING = "no Chromium is installed; install the package chromium of your system"
ARGUMENTS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]


@contextlib.contextmanager
def studio(*folders: str) -> Iterator[str]:
    """Run `transduce studio` and return its address."""
    command = [sys.executable, "-m", "transduce", "studio", *folders, "--no-browser"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        printed = []
        for line in process.stderr:
            printed.append(line)
            if "stop with Ctrl-C" in line:
                break
        found = re.search(r"http://127\.0\.0\.1:\d+", "".join(printed))
        if found is None:
            raise RuntimeError("".join(printed))
        try:
            yield found[0]
        finally:
            process.terminate()


def chromium_path() -> str | None:
    """Return the path of the system's Chromium, or None where there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@contextlib.contextmanager
def browser(sync_playwright: Any, path: str) -> Iterator[Any]:
    """Launch a headless Chromium by playwright's `sync_playwright`."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield found
        found.close()
