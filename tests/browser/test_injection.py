"""R30: two hundred attacks as text, token, label, name, address, error and saved page; nothing runs, nothing leaves.

The model of all tests in this folder has the attacks in its vocabulary, its name and its journal. Every eleventh is
tried by default, all by `make test-browser`.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.browser.conftest import Visit
from tests.browser.payloads import OUTSIDE, PAYLOADS, SAMPLE, WORDS
from tests.browser.served import studio
from transduce.inspection.maps import AttentionMaps
from transduce.model_folder import ModelFolder, save_model
from transduce.models.bert import BertConfig
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_encoder_tokenizer

amounts = pytest.mark.parametrize(
    "payloads", [pytest.param(SAMPLE, id="sample"), pytest.param(PAYLOADS, id="all", marks=pytest.mark.long)]
)
all_payloads = pytest.mark.parametrize("payloads", [pytest.param(PAYLOADS, id="all", marks=pytest.mark.long)])
VIEWS = ("translate", "beam-tree", "attention", "intervene", "inside", "runs", "paper")


def type_lines(visit: Visit, lines: Sequence[str]) -> None:
    """Type one text of several lines and wait until all are translated."""
    visit.page.get_by_role("textbox", name="Text", exact=True).fill("\n".join(lines))
    everything = visit.page.get_by_role("button", name="Translate all")
    visit.page.wait_for_timeout(500)
    if everything.count():  # it goes as soon as all are translated
        visit.page.locator("button", has_text="Translate all").evaluate("button => button.click()")
    visit.page.wait_for_function(
        "count => document.querySelectorAll('.sentence .foot, .failed').length >= count",
        arg=len(lines),
        timeout=120_000,
    )


@pytest.mark.long
def test_most_payloads_run_where_nothing_protects(chromium: Any) -> None:
    """The attacks are real: as markup of an unprotected page, they run or leave the origin."""
    context = chromium.new_context()
    page, asked = context.new_page(), set[str]()
    page.route(f"{OUTSIDE}**", lambda route: (asked.add(page.evaluate("window.now")), route.abort()))
    page.set_content("<iframe></iframe>")
    page.evaluate("window.ran = new Set(); window.hit = () => window.ran.add(Number(window.now));")
    for at, payload in enumerate(PAYLOADS):
        page.evaluate(
            """([at, text]) => { window.now = String(at);
                document.querySelector("iframe").srcdoc = "<script>hit = () => parent.hit()</" + "script>" + text; }""",
            [at, payload],
        )
        page.wait_for_timeout(60)
    ran = set(page.evaluate("[...window.ran]")) | {int(one) for one in asked}
    context.close()
    attacks = {at // 4 for at in ran}  # each stands behind four different beginnings; some need a click or other places
    assert len(ran) >= 80 and len(attacks) >= 20, f"only {len(ran)} of {len(PAYLOADS)} payloads do anything"


def test_what_would_run_is_noticed(visit: Visit) -> None:
    """The watch works: markup that is inserted by force is stopped by the policy and reported."""
    page = visit.open("#/translate")
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=hit()>')")
    page.wait_for_function("window.reports.length > 0")
    assert page.evaluate("window.hits") == 0
    with pytest.raises(AssertionError):
        visit.check_nothing_ran()


@amounts
def test_text_never_becomes_markup(visit: Visit, payloads: Sequence[str]) -> None:
    page = visit.open("#/translate")
    type_lines(visit, [f"ban {text} der".replace("\u2028", " ") for text in payloads])
    page.locator("[data-tab=attention]").click()
    page.locator(".heat-map").wait_for()
    shown = page.get_by_label("Sentence of the text").locator("option").all_inner_texts()
    assert sum(text.startswith("ban ") and len(text) > 12 for text in shown) >= len(payloads)
    visit.check()


@all_payloads
def test_addresses_never_become_markup(visit: Visit, payloads: Sequence[str]) -> None:
    page = visit.open("#/translate")
    quote = urllib.parse.quote
    for number, text in enumerate(payloads):
        given = json.dumps({"search": {text: text}, "glossary": {text: text}, "row": text})
        for link in (
            f"#/{text}",
            f"#/{VIEWS[number % len(VIEWS)]}?text={quote(text)}&model={quote(text)}&at={quote(text)}",
            f"#/translate?options={quote(given)}&view={quote(given)}&force={quote(json.dumps([text]))}",
        ):
            page.evaluate("link => { location.hash = link; }", link)
            page.wait_for_timeout(20)
    page.wait_for_timeout(500)
    visit.check_nothing_ran()  # options that do not exist are rejected by the server, as they should


@all_payloads
def test_errors_never_become_markup(visit: Visit, payloads: Sequence[str]) -> None:
    page, left = visit.open("#/translate"), list(payloads)

    def fail(route: Any) -> None:
        error = {"error": {"message": left[0], "parameter": left[0]}}
        route.fulfill(status=422, content_type="application/json", body=json.dumps(error))

    page.route("**/studio/api/translate", fail)
    for number in range(len(payloads)):
        page.get_by_role("textbox", name="Text", exact=True).fill(f"ban {number}")
        page.locator(".failed, .notice").filter(has_text=left[0].strip()[:12]).first.wait_for()
        left.pop(0)
    visit.check_nothing_ran()


@amounts
def test_tokens_and_names_never_become_markup(visit: Visit, payloads: Sequence[str], tmp_path: Path) -> None:
    """The tokens of every view are attacks; each view is opened, used and saved as a file."""
    chosen = [WORDS[PAYLOADS.index(text)] for text in payloads][:60]
    page = visit.open("#/translate")
    page.locator("select[aria-label=Model] option").first.wait_for(state="attached")
    assert page.locator("select[aria-label=Model]").inner_text().strip() == "<script>hit()</script>"
    type_lines(visit, [" ".join(chosen)])
    page.locator(".sentence .target .token").nth(1).hover()
    page.get_by_role("dialog", name="Alternatives").wait_for()
    for name in VIEWS if len(payloads) > len(SAMPLE) else VIEWS[2:3]:
        page.locator(f"[data-tab={name}]").click()
        page.wait_for_timeout(1500)
        for part in page.locator(".panel:not([hidden]) details").all():
            part.evaluate("part => { part.open = true; }")
        page.keyboard.press("Tab")
        with page.expect_download() as download:
            page.get_by_role("button", name="Save as HTML").click()
        download.value.save_as(tmp_path / "saved.html")
        open_saved(visit.context.browser, tmp_path / "saved.html")
    visit.check()


@all_payloads
def test_saved_pages_never_become_markup(chromium: Any, payloads: Sequence[str], tmp_path: Path) -> None:
    """Pages of the Python API, with `</script>` in their JSON."""
    count = len(payloads)
    even = np.full((1, 1, count, count), 1 / count, dtype=np.float32)
    maps = AttentionMaps(
        {"encoder": even}, tuple(payloads), source=payloads[0], translation=payloads[-1], subject="text"
    )
    maps.save_html(tmp_path / "maps.html")
    open_saved(chromium, tmp_path / "maps.html")


def open_saved(browser: Any, path: Path) -> None:
    """Open a saved page and its tables; nothing runs."""
    alone = Visit(browser, path.as_uri())
    alone.page.goto(path.as_uri())
    alone.page.locator(".view").first.wait_for()
    for part in alone.page.locator("details").all():
        part.evaluate("part => { part.open = true; }")
    alone.page.wait_for_timeout(200)
    alone.check()
    alone.context.close()


@pytest.fixture(scope="session")
def labeller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A studio with a text encoder that labels words, and whose labels are attacks."""
    texts = [f"{first}{second}" for first in "bdfgk" for second in "aeiou"]
    tokenizer = train_encoder_tokenizer(TokenizerConfig(kind="wordpiece", vocab_size=90, min_frequency=1), texts)
    config = BertConfig(
        model_dim=14, num_heads=2, ffn_dim=19, num_layers=1, max_positions=97, head="tags", num_labels=len(PAYLOADS)
    )
    model: Any = build(config, VocabularySizes(tokenizer.size, tokenizer.size), seed=5)
    folder = tmp_path_factory.mktemp("labels") / "model"
    for weight in model.parameters():
        weight.data *= 5
    save_model(folder, ModelFolder(model, config, tokenizer, tokenizer, {"labels": list(PAYLOADS)}), "a card")
    with studio(str(folder)) as found:
        yield found


@pytest.mark.long
def test_labels_never_become_markup(chromium: Any, labeller: str) -> None:
    visit, seen = Visit(chromium, labeller), set[str]()
    page = visit.open("#/translate")
    for first in "bdfgk":
        words = [f"{first}{second} {second}{first}{third}" for second in "aeiou" for third in "aeiou"]
        page.get_by_role("textbox", name="Text", exact=True).fill(" ".join(words)[:200])
        page.wait_for_timeout(400)
        page.locator(".sentence .foot").wait_for()
        shown = page.evaluate("document.querySelector('#main').textContent")
        seen |= {text for text in PAYLOADS if text in shown}
    assert len(seen) >= 5, f"the model gives too few labels to try anything: {shown[:700]}"
    visit.check()
    visit.context.close()
