"""A real browser on a real server: `transduce studio` with a small model, and Chromium driven by playwright."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.payloads import PAYLOADS, WORDS
from tests.browser.served import studio
from tests.torture.served_model import save_random_model
from tests.unit.inspection.run_example import check, folder_of, moment, update

NAME = "<script>hit()</script>"
"""The name of the model."""
SIZES = {"desktop": (1440, 900), "phone": (390, 844), "small": (320, 640), "large": (3840, 2160)}


WATCH = """
window.hits = 0;
window.hit = () => { window.hits += 1; };
window.reports = [];
document.addEventListener("securitypolicyviolation", (event) => window.reports.push(event.violatedDirective));
"""
"""Runs before every script of a page: counts what the payloads run and what the policy reports."""


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run whose model is served: half of its vocabulary, its name and what it logged are attacks."""
    run = tmp_path_factory.mktemp("browser") / "<img src=x onerror=hit()>"
    save_random_model(run / "model", words=WORDS)
    journal = [update(10), check(10, 1.5, True, samples=[[one, one, one] for one in PAYLOADS[:60:3]])]
    folder_of(run, journal, [moment(10, 3.0)])
    (run / "recipe.toml").write_text(f"[data.train]\npath = {json.dumps(PAYLOADS[2])}\n", encoding="utf-8")
    return run


@pytest.fixture(scope="session")
def address(model: Path) -> Iterator[str]:
    """The address of a running studio."""
    with studio(f"{NAME}={model}") as found:
        yield found


class Visit:
    """One page of the studio, and everything that went wrong on it."""

    def __init__(self, browser: Any, address: str, size: str = "desktop", scheme: str = "light") -> None:
        width, height = SIZES[size]
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True
        )
        self.context.add_init_script(WATCH)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.address = address
        self.errors: list[str] = []
        self.outside: list[str] = []
        self.page.on("console", self._read)
        self.page.on("response", lambda answer: answer.ok or self.errors.append(f"{answer.status} {answer.url}"))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self._note(request.url))

    def _read(self, message: Any) -> None:
        if message.type == "error" and not message.text.startswith("Failed to load resource"):  # it has no address
            self.errors.append(message.text)

    def _note(self, url: str) -> None:
        if not url.startswith((self.address, "data:", "blob:", "file:")):
            self.outside.append(url)

    def open(self, link: str = "") -> Any:
        """Open a link of the studio in a new page load."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}/{link}")
        return self.page

    def translate(self, text: str) -> None:
        """Type a text and wait for its translation."""
        box = self.page.get_by_role("textbox", name="Text", exact=True)
        box.fill("")  # the page may still be translating the text that it opened with
        self.page.evaluate("() => new Promise((done) => setTimeout(done, 400))")  # after the pause for further typing
        self.page.locator(".sentence").first.wait_for(state="detached")
        box.fill(text)
        self.page.locator(".sentence .foot").last.wait_for()

    def check(self) -> None:
        """Nothing failed, and nothing was requested elsewhere."""
        assert self.errors == []
        self.check_nothing_ran()

    def check_nothing_ran(self) -> None:
        """No payload ran, the policy had nothing to report, and nothing was requested elsewhere."""
        assert self.page.evaluate("[window.hits, window.reports]") == [0, []]
        assert self.outside == []


@pytest.fixture
def visit(chromium: Any, address: str) -> Iterator[Visit]:
    """A page of the studio on a desktop."""
    made = Visit(chromium, address)
    yield made
    made.context.close()
