"""The guide to the server against the code: its clients are run, its tables and numbers compared."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml

from tests.documents.markdown import ROOT, blocks, commands, prose
from tests.unit.serving.api.live import KEY, Live, live
from tests.unit.serving.fake_backend import ENCODER, GENERATOR, TRANSLATOR
from tests.unit.serving.front import Front
from transduce.cli.main import transduce as program
from transduce.serving.api.responses import TranslateResponse
from transduce.serving.connection import Timeouts
from transduce.serving.limits import Limits
from transduce.serving.metrics import REASONS
from transduce.serving.scheduler import Capacity
from transduce.serving.security import MAX_HEADERS

PAGE = ROOT / "docs/how-to/serve.md"
TEXT = " ".join(re.sub(r"<!--.*?-->", "", prose(PAGE), flags=re.DOTALL).split())
ADDRESSES = re.compile(r"http://(127\.0\.0\.1:8000|translate\.example\.com)")


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with live(TRANSLATOR, GENERATOR, ENCODER, keys=(KEY,)) as running:
        yield running


def run(server: Live, *command: str) -> str:
    """Run a program of the page, with the server's address in the place of the page's."""
    words = [ADDRESSES.sub(server.url, word).replace("$TRANSDUCE_API_KEY", KEY) for word in command]
    environment = {**os.environ, "TRANSDUCE_API_KEY": KEY, "NO_PROXY": "*"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"
    return done.stdout


def test_every_call_of_curl_is_answered(server: Live) -> None:
    calls = [words for words in commands(PAGE) if words[0] == "curl"]
    assert len(calls) >= 8
    for words in calls:
        keyed = words if any("$TRANSDUCE" in word for word in words) else [*words, "-H", f"X-API-Key: {KEY}"]
        shown = run(server, *keyed, "--silent", "--fail-with-body")
        assert "HUND" in shown or "/v1/models" in " ".join(words) or "translations" in shown, words


def test_every_python_client_works(server: Live) -> None:
    programs = [block for block in blocks(PAGE, "python") if "127.0.0.1:8000" in block]
    assert len(programs) == 3
    shown = run(server, sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", "\n".join(programs))
    assert shown.splitlines() == [
        "EIN HUND LÄUFT.",
        "ZWEI KATZEN SCHLAFEN.",
        "EIN HUND LÄUFT.",
        " and so on3",
        *["EIN HUND LÄUFT."] * 3,
    ]


@pytest.mark.skipif(
    shutil.which("node") is None, reason="runs the page's JavaScript; installing Node.js 18 or newer removes this skip"
)
def test_the_javascript_client_works(server: Live) -> None:
    (script,) = blocks(PAGE, "javascript")
    assert run(server, "node", "--input-type=module", "--eval", script) == "EIN HUND LÄUFT."


def test_the_answer_and_the_line_of_the_log_have_the_fields_of_the_page(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "transduce.access")
    answer, line = map(json.loads, blocks(PAGE, "json"))
    TranslateResponse.model_validate(answer)
    given = Front().client.post("/v1/translate", json={"text": "ein Hund"}).json()
    assert given.keys() == answer.keys() and given["translations"][0].keys() == answer["translations"][0].keys()
    assert json.loads(caplog.records[-1].getMessage()).keys() == line.keys()


def test_every_metric_of_the_page_exists() -> None:
    settings, rules = map(yaml.safe_load, blocks(PAGE, "yaml"))
    assert settings["scrape_configs"][0]["authorization"]
    expressions = [rule["expr"] for rule in rules["groups"][0]["rules"]]
    front = Front()
    front.client.post("/v1/translate", json={"text": "a b", "stream": True})
    found = set(re.findall(r"^# TYPE (\S+)", front.client.get("/metrics").text, re.MULTILINE))
    named = {name for text in (TEXT, *expressions) for name in re.findall(r"transduce_\w+", text)}
    assert len(named) > 12
    assert {name.removesuffix("_bucket") for name in named} <= found
    reasons = {
        reason for text in expressions for one in re.findall(r'reason=~?"(.*?)"', text) for reason in one.split("|")
    }
    assert reasons and reasons <= set(REASONS.values())


def test_every_status_is_in_the_table() -> None:
    rows = re.findall(r"^\| ([0-9, ]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    listed = {int(status) for row in rows for status in row.split(",")}
    assert listed == REASONS.keys() - {499}


def test_limits_are_those_of_the_server() -> None:
    limits, capacity, timeouts = Limits(), Capacity(), Timeouts()
    assert limits.max_body_bytes == 1 << 20
    for number, noun in (
        (limits.max_texts, "texts"),
        (limits.max_characters, "characters"),
        (limits.max_terms, "entries of a glossary"),
        (limits.max_n_best, "translations of each text"),
        (limits.max_length, "tokens to write"),
        (capacity.max_rows, "rows"),
        (capacity.max_tokens, "tokens of caches"),
        (MAX_HEADERS, "headers"),
        (round(timeouts.shutdown), "seconds, and exits with 0"),
    ):
        assert f"{number:,} {noun}" in TEXT, noun
    assert f"a beam of {limits.max_beam_size}" in TEXT
    assert f"| `--max-queue-tokens` | `{limits.max_queue_tokens}` |" in TEXT
    assert f"| `--timeout` | `{limits.timeout:g}` |" in TEXT


def test_every_option_of_the_command_is_in_the_table() -> None:
    command = program.get_command(program.make_context("transduce", [], resilient_parsing=True), "serve")
    assert command is not None
    cells = re.findall(r"^\| (`--.*?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    listed = {option for cell in cells for option in re.findall(r"`(--[\w-]+)`", cell)}
    options = {option for one in command.params for option in one.opts if option.startswith("--")}
    assert listed == options - {"--help", "--quiet", "--verbose"}
