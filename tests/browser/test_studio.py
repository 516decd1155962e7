"""What a person does in the studio, in a real browser: type, read, point, click, switch off, save, share a link."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Visit
from transduce.inference.load import load_translator

TEXT = "ban der fis gon"
VIEWS = ("start", "translate", "beam-tree", "attention", "intervene", "inside", "runs", "paper")


def _tokens(page: Any) -> list[str]:
    return [text.strip() for text in page.locator(".sentence .target .token").all_inner_texts()]


def test_a_translation_is_typed_read_and_continued_from_another_token(visit: Visit, model: Path) -> None:
    page = visit.open("#/translate")
    visit.translate(TEXT)
    translator = load_translator(model)
    page.get_by_text(re.compile(r"score ")).first.wait_for()
    expected = re.sub("[\u202a-\u202e\u2066-\u2069]", lambda found: f"‹{ord(found[0]):04X}›", translator(TEXT)).split(
        " "
    )
    before = _tokens(page)
    assert [token for token in before if token.lower() != "end"] == expected

    page.locator(".sentence .target .token").nth(1).hover()
    card = page.get_by_role("dialog", name="Alternatives")
    card.wait_for()
    shown = card.locator(".choice .share").first.inner_text()
    assert shown.endswith("%")
    other = card.locator("button.choice").first
    name = other.locator(".name").inner_text().strip()
    other.click()
    page.get_by_text(re.compile("kept")).wait_for()
    after = _tokens(page)
    assert after[0] == before[0] and after[1] == name and after[1] != before[1]
    page.get_by_role("button", name="Undo").click()
    page.get_by_text(re.compile("kept")).wait_for(state="detached")
    assert _tokens(page) == before
    visit.check()


def test_another_token_is_chosen_and_a_head_switched_off_by_keyboard(visit: Visit) -> None:
    page = visit.open("#/translate")
    visit.translate(TEXT)
    page.locator(".sentence .target .token").nth(1).focus()
    before = _tokens(page)
    page.keyboard.press("Enter")
    card = page.get_by_role("dialog", name="Alternatives")
    card.locator("button.choice:focus").wait_for()
    page.keyboard.press("Escape")
    card.wait_for(state="hidden")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    card.locator("button.choice:focus").wait_for()
    page.keyboard.press("Enter")
    page.get_by_text(re.compile("kept")).wait_for()
    after = _tokens(page)
    assert after[:2] == before[:2] and after[2] != before[2]
    page.get_by_role("link", name="Intervene").focus()
    page.keyboard.press("Enter")
    page.locator(".board [role=switch], .board button[aria-checked]").first.focus()
    page.keyboard.press("Space")
    page.get_by_text("Intact model").wait_for()
    visit.check()


def test_a_pruned_branch_is_forced_and_compared(visit: Visit) -> None:
    page = visit.open("#/translate")
    visit.translate(TEXT)
    page.get_by_role("link", name="Beam tree").click()
    tree = page.get_by_role("tree")
    tree.wait_for()
    tree.locator(".tree-node.pruned").first.click()
    page.get_by_role("button", name="Force this branch and compare").click()
    page.locator(".compared").get_by_text(re.compile(r"\S")).first.wait_for()
    page.keyboard.press("Tab")
    visit.check()


@pytest.mark.long
def test_the_tree_is_fitted_to_the_width(visit: Visit) -> None:
    page = visit.open("#/translate")
    visit.translate("ban der fis")
    page.get_by_role("link", name="Beam tree").click()
    page.get_by_role("tree").wait_for()

    def width() -> float:
        found: float = page.get_by_role("tree").evaluate("tree => tree.offsetWidth / tree.parentElement.clientWidth")
        return found

    before = width()
    page.get_by_role("button", name="Fit the width").click()
    assert width() <= max(1.0, before * 0.47)  # as wide as the box, or as small as can still be read
    visit.check()


def test_a_masked_word_and_a_head_change_the_probability_as_in_python(visit: Visit, model: Path) -> None:
    page = visit.open("#/translate")
    visit.translate(TEXT)
    page.get_by_role("link", name="Intervene").click()
    with page.expect_response(re.compile(r"/intervention$")) as masked:
        page.get_by_role("region", name="Source").get_by_role("button", name=re.compile("^der")).first.click()
    found = masked.value.json()
    wanted = load_translator(model).ablate(TEXT, words=[1]).to_json()
    assert found["changed"]["text"] == wanted["changed"]["text"]
    assert found["changed"]["after"] == pytest.approx(wanted["changed"]["after"], abs=1e-5)
    with page.expect_response(re.compile(r"/intervention$")):
        page.locator(".board button:not([disabled])").nth(1).click()
    page.get_by_role("button", name="Reset").click()
    visit.check()


@pytest.mark.long
def test_every_view_opens_without_an_error_at_each_size(chromium: Any, address: str) -> None:
    for size, scheme in (("desktop", "light"), ("phone", "dark"), ("small", "light"), ("large", "dark")):
        visit = Visit(chromium, address, size, scheme)
        for name in VIEWS:
            page = visit.open(f"#/{name}")
            page.locator(f"[data-tab={name}][aria-current=page]").wait_for()
            page.wait_for_timeout(700)
            assert not page.locator("#unable").count(), f"{name} says that the model has no such view"
            tab = page.locator(f"[data-tab={name}]").bounding_box()
            assert tab["x"] >= 0 and tab["x"] + tab["width"] <= page.viewport_size["width"], f"{name} is out of view"
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{name} is {wide} pixels too wide on a {size}"
        visit.check()
        visit.context.close()


@pytest.mark.long
def test_every_step_of_the_tour_opens(visit: Visit) -> None:
    page = visit.open("#/paper")
    page.get_by_role("textbox", name="Sentence of the tour").fill(TEXT)
    for number in range(2, 30):
        following = page.get_by_role("button", name=re.compile("^(Next|The end)"))
        following.wait_for()
        page.wait_for_timeout(150)
        if following.is_disabled():
            break
        following.click()
        page.get_by_text(re.compile(rf"^{number} of \d+$")).wait_for()
    else:
        pytest.fail("the tour does not end")
    assert number > 8
    visit.check()


def test_a_link_restores_the_view_and_the_sentence(visit: Visit) -> None:
    page = visit.open("#/translate")
    visit.translate(TEXT)
    page.get_by_role("link", name="Attention").click()
    page.get_by_role("button", name="Encoder").click()
    page.wait_for_timeout(1000)  # the address follows what is chosen
    link = page.evaluate("location.hash")
    assert "encoder" in link
    page = visit.open(link)
    page.get_by_role("button", name="Encoder").and_(page.locator("[aria-pressed=true]")).wait_for()
    assert page.get_by_role("textbox", name="Sentence").first.input_value() == TEXT
    visit.check()


@pytest.mark.long
def test_a_saved_page_works_without_a_server(visit: Visit, tmp_path: Path) -> None:
    page = visit.open("#/translate")
    visit.translate(TEXT)
    views = {
        "Attention": ".heat-map",
        "Beam tree": "[role=tree]",
        "Inside": ".lens",
        "Tour": ".lesson",
        "Translate": ".translation",
    }
    for tab, shown in views.items():
        page.get_by_role("link", name=tab).click()
        page.locator(f"#main {shown}").first.wait_for()
        page.wait_for_timeout(500)
        with page.expect_download() as download:
            page.get_by_role("button", name="Save as HTML").click()
        kept = tmp_path / f"{tab}.html"
        download.value.save_as(kept)
        assert "script-src 'sha256-" in kept.read_text()
        alone = Visit(visit.context.browser, kept.as_uri())
        alone.page.goto(kept.as_uri())
        alone.page.locator(shown).first.wait_for()
        alone.check()
        alone.context.close()
    visit.check()


@pytest.mark.long
@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_axe_finds_no_serious_violation(chromium: Any, address: str, size: str, scheme: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.base", reason="axe-playwright-python is not installed; `make test-browser` installs it"
    )
    script = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    visit = Visit(chromium, address, size, scheme)
    page = visit.open("#/translate")
    visit.translate(TEXT)

    def examine(name: str) -> None:
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(400)
        for part in page.locator(".panel:not([hidden]) details").all():
            part.evaluate("part => { part.open = true; }")
        page.evaluate(script)
        found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        bad = [
            (one["id"], [node["target"] for node in one["nodes"]][:3])
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]
        assert bad == [], f"{name}: {bad}"

    for name in VIEWS:
        page.locator(f"[data-tab={name}]").click()
        examine(name)
        if name == "attention":
            page.locator("[data-head='2.1']").click()
            page.locator(".panel-attention .token-strip button").nth(1).click()
            page.locator(".neuron-place button").click()
            examine("one row of a head")
        if name == "intervene":
            page.locator(".board button:not(.head)").nth(1).click()
            page.get_by_text("Intact model").wait_for()
            examine("an intervention")
        if name == "inside":
            for part in ("attribution", "heads"):
                page.locator(f"[data-part={part}]").click()
                examine(part)
        if name == "paper":
            while not (following := page.locator(".tour-foot .primary")).is_disabled():
                following.click()
                examine(page.locator(".tour-count").inner_text())
    visit.context.close()


@pytest.mark.long
def test_subtitles_are_translated_between_their_times(visit: Visit, model: Path) -> None:
    page = visit.open("#/translate")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit.translate("1\n00:00:01,000 --> 00:00:02,500\nban der fis\n\n2\n00:00:03,000 --> 00:00:04,000\ngon ban")
    page.locator(".sentence .foot").nth(1).wait_for()
    assert page.locator(".sentence").count() == 2
    page.get_by_role("button", name="Copy translation").click()
    page.locator("#toast", has_text="Copied").wait_for()
    first, second = load_translator(model).translate(["ban der fis", "gon ban"])
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == f"1\n00:00:01,000 --> 00:00:02,500\n{first}\n\n2\n00:00:03,000 --> 00:00:04,000\n{second}"
    visit.check()


@pytest.mark.long
def test_the_button_that_translates_all_lines_does_not_move(visit: Visit) -> None:
    page, lines = visit.open("#/translate"), [f"ban der {number}" for number in range(40)]
    page.get_by_role("textbox", name="Text", exact=True).fill("\n".join(lines))
    everything = page.get_by_role("button", name="Translate all")
    everything.wait_for()
    before = everything.bounding_box()
    page.locator(".sentence .foot").nth(3).wait_for()
    assert everything.bounding_box()["y"] == before["y"]
    everything.click()
    page.locator(".sentence .foot").nth(39).wait_for()
    everything.wait_for(state="hidden")
    visit.check()


@pytest.mark.long
def test_words_are_forced_and_forbidden_by_chips(visit: Visit) -> None:
    page = visit.open("#/translate")
    visit.translate(TEXT)
    before = _tokens(page)
    page.get_by_text("Search and vocabulary").click()
    page.get_by_label("Method").select_option("beam")  # a forced word needs one
    page.get_by_label("Beam size").wait_for()
    for title, word in (("Must not contain", before[0]), ("Must contain", "lat")):
        box = page.get_by_role("textbox", name=f"{title}: add")
        box.fill(word)
        with page.expect_response(re.compile(r"/translate$")):
            box.press("Enter")
        page.locator(".sentence .foot").wait_for()
    page.wait_for_function("() => document.querySelector('.sentence .target')?.textContent.includes('lat')")
    assert before[0] not in _tokens(page) and "lat" in _tokens(page)
    visit.check()


@pytest.mark.long
def test_what_failed_is_tried_again_once_the_server_is_back(visit: Visit) -> None:
    page = visit.open("#/translate")
    visit.translate(TEXT)
    page.route("**/studio/api/**", lambda route: route.abort())
    page.get_by_role("textbox", name="Text", exact=True).fill("gon ban")
    page.locator(".failed").wait_for()
    page.get_by_role("link", name="Beam tree").click()
    page.locator(".panel-beam-tree .empty", has_text="does not answer").wait_for()
    page.unroute("**/studio/api/**")
    page.get_by_role("button", name="Try again").click()
    page.get_by_role("tree").wait_for()
    assert page.locator(".notice").count() == 0
    visit.check()


@pytest.mark.long
def test_without_a_text_every_view_says_what_to_do(visit: Visit) -> None:
    page = visit.open("#/beam-tree")
    page.get_by_role("tree").wait_for()
    page.get_by_role("textbox", name="Sentence", exact=True).fill("")
    for tab in ("beam-tree", "attention", "intervene", "inside"):
        page.locator(f"[data-tab={tab}]").click()
        page.locator(f".panel-{tab} .empty", has_text="Type a sentence above.").wait_for()
    visit.check()
