"""Models of every task in one studio, and two of them side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Visit
from tests.browser.served import studio
from tests.torture.served_model import save_random_model
from transduce.inference.load import load_generator, load_text_encoder, load_translator

STORED = Path(__file__).resolve().parents[1] / "unit" / "stored"
TASKS = {"translation": "one two three", "language_modeling": "one two three", "text_encoding": "one two red"}
"""What each stored model reads; the number of a model is its place here."""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second translation model."""
    return save_random_model(tmp_path_factory.mktemp("other") / "model", words=["one", "two", "three"])


@pytest.fixture(scope="module")
def four(other: Path) -> Iterator[str]:
    with studio(*(f"{task}={STORED / task}" for task in TASKS), f"other={other}") as found:
        yield found


@pytest.fixture
def seen(chromium: Any, four: str) -> Iterator[Visit]:
    made = Visit(chromium, four)
    yield made
    made.check()
    made.context.close()


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_a_model_has_its_views_and_every_step_of_its_tour(seen: Visit, task: str) -> None:
    link = f"?model={list(TASKS).index(task)}&text={TASKS[task].replace(' ', '+')}"
    page = seen.open(f"#/translate{link}")
    page.locator(".sentence .foot").wait_for()
    for name in page.locator("[data-tab]:not([hidden])").evaluate_all("all => all.map((one) => one.dataset.tab)"):
        page.locator(f"[data-tab={name}]").click()
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(300)
        assert page.locator(f".panel-{name}").inner_text().strip() and not page.locator(".failed").count(), name
    while not (following := page.get_by_role("button", name=re.compile("^(Next|The end)"))).is_disabled():
        following.click()
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(150)
        assert not page.get_by_text("This step cannot be shown").count(), page.locator(".tour-count").inner_text()


@pytest.mark.long
def test_what_other_models_write_is_what_python_gives(seen: Visit) -> None:
    page = seen.open("#/translate?model=1&text=one+two")
    page.locator(".sentence .foot").wait_for()
    tokens = [text.strip() for text in page.locator(".target .token").all_inner_texts()]
    assert f"one two {load_generator(STORED / 'language_modeling')('one two').strip()}" in " ".join(tokens)
    page = seen.open("#/translate?model=2&text=one+two+red")
    page.locator(".sentence .foot").wait_for()
    label = load_text_encoder(STORED / "text_encoding").attention("one two red").translation
    assert label.strip() in page.locator(".sentence .target").inner_text()


@pytest.mark.long
def test_two_models_translate_the_same_sentence_side_by_side(seen: Visit, other: Path) -> None:
    text = TASKS["translation"]
    page = seen.open(f"#/runs?text={text.replace(' ', '+')}")
    page.get_by_label("compare with").first.select_option(label="other")
    page.locator(".stage").nth(1).locator(".emergence-output bdi").first.wait_for()
    written = [" ".join(one.inner_text().split()) for one in page.locator(".emergence-output").all()]
    assert written == [load_translator(folder)(text) for folder in (STORED / "translation", other)]
    page.wait_for_timeout(600)
    page = seen.open(page.evaluate("location.hash"))  # a link restores both
    page.locator(".stage").nth(1).locator(".emergence-output bdi").first.wait_for()
