"""The outcome of a finding follows from its checks, and its files agree with it."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from transduce.errors import CannotCreate, SettingsError
from transduce.experiments import report as page
from transduce.experiments.catalog import EXPERIMENTS, check, find, module_of
from transduce.experiments.finding import Chart, ClaimCheck, Conditions, Finding, Series


def finding(*passed: bool) -> Finding:
    return Finding(
        title="Widgets",
        claim="more is more.",
        setting={"sizes": 2},
        columns=("what", "how many", "how much"),
        rows=(("a", 1024, 0.03125), ("b", 3, math.inf)),
        charts=(Chart("One", "x < 1", "y", (Series("up", (1, 2), (3, 4)), Series("down", (1, 2), (4, 3)))),) * 2,
        checks=tuple(ClaimCheck(f"number {number}", one) for number, one in enumerate(passed)),
    )


@pytest.mark.parametrize(
    ("passed", "outcome"),
    [((True, True), "holds"), ((True, False), "holds in part"), ((False, False), "does not hold")],
)
def test_the_outcome_follows_from_the_checks(passed: tuple[bool, ...], outcome: str) -> None:
    assert finding(*passed).outcome == finding(*passed).to_json()["outcome"] == outcome
    assert page.verdict_lines(finding(*passed))[0] == f"The claim {outcome}."


def test_the_three_files_agree(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot: pip install 'transduce[plot]' removes this skip")
    one = finding(True, False)
    names = [path.name for path in page.save(one, tmp_path, "widgets")]
    assert names == ["widgets.json", "widgets.md", "widgets.svg"]
    saved = json.loads((tmp_path / "widgets.json").read_text())
    assert saved["rows"] == [["a", 1024, 0.03125], ["b", 3, None]]  # JSON has no infinity
    assert [check["passed"] for check in saved["checks"]] == [True, False]
    text = (tmp_path / "widgets.md").read_text()
    assert "| a | 1,024 | 0.0312 |" in text and "| --- | ---: | ---: |" in text
    assert "**The claim holds in part.**" in text and "- yes: number 0\n- no: number 1" in text
    drawn = ET.parse(tmp_path / "widgets.svg").getroot()
    words = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("One") == 2 and {"up", "down", "x < 1"} <= set(words)


def test_a_picture_is_the_same_bytes_each_time() -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot: pip install 'transduce[plot]' removes this skip")
    assert page.draw(finding(True).charts) == page.draw(finding(True).charts)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_listed_experiment_can_be_carried_out(name: str) -> None:
    experiment = find(name)
    assert callable(getattr(module_of(experiment), "run" if experiment.is_study else "measure"))


def test_conditions_that_would_be_ignored_are_rejected() -> None:
    for conditions, fact in ((Conditions(quick=True), "--quick"), (Conditions(data=Path("x")), "--data")):
        with pytest.raises(SettingsError, match=fact):
            check("scaling", conditions)


def test_an_unknown_claim_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(SettingsError, match="'scalling'; did you mean 'scaling'"):
        find("scalling")


def test_an_impossible_folder_is_rejected_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotCreate, match="file"), page.opened(tmp_path / "file" / "folder"):
        pytest.fail("something would have been measured")
