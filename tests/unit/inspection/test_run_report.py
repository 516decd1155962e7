"""A run on a page: what its journals say is what is shown, however far it came and whatever its texts spell."""

from __future__ import annotations

import json
import math
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.inspection.run_example import SAMPLES, check, folder_of, moment, update
from tests.unit.inspection.test_page import Page
from transduce.cli.main import run as run_command
from transduce.errors import CannotCreate, ModelFolderError, SettingsError
from transduce.inspection.run_record import read_run
from transduce.inspection.run_report import content, labels, means, page, save_report, spread, thin
from transduce.storage.journal import Journal


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    journal = [
        {"event": "began", "seed": 3, "threads": 1, "recipe": "a" * 64},
        update(2),
        {"event": "skipped", "update": 3, "loss": "nan", "norm": "inf"},
        update(4),
        check(4, 1.5, best=True),
        update(6),
        check(6, 1.25, best=True),
        check(8, 1.75, best=False),
        {"event": "final", "updates": [6], "loss": 1.25, "accuracy": 0.75},
    ]
    timing = [
        moment(2, 10.0, memory=3 * 2**20),
        moment(4, 12.0, memory=7 * 2**20),
        moment(6, 13.0, memory=5 * 2**20),
        {"event": "ended", "seconds": 14.0, "at": 1.79e9, "update": 8},
    ]
    folder = folder_of(tmp_path / "first", journal, timing)
    (folder / "recipe.toml").write_text(
        '[data]\nseparator = "<b>"\n[data.train]\npath = "a.tsv"\n[training]\nupdates = 8\nbetas = [0.9, 0.98]\n'
    )
    (folder / "data").mkdir()
    issues = {"duplicate": {"kept": 0, "dropped": 1234, "examples": [{"line": 5, "source": "a", "target": "b"}]}}
    (folder / "data" / "report.json").write_text(
        json.dumps({"train": {"read": 29000, "issues": issues}, "joint": True})
    )
    return folder


def shown(*folders: Path) -> dict[str, Any]:
    runs = [read_run(folder) for folder in folders]
    found = json.loads(Page(page(runs)).inside["data"])
    assert isinstance(found, dict)
    return found


def table(groups: list[dict[str, Any]], title: str) -> dict[str, list[str | None]]:
    (group,) = [group for group in groups if group["title"] == title]
    return {name: values for name, *values in group["rows"]}


# ---- what is shown


def test_every_number_of_the_journal_is_on_its_curve(finished: Path) -> None:
    found = shown(finished)
    (run,) = found["runs"]
    curves = run["curves"]
    assert curves["loss"] == [[2, 4, 6], [5.5, 2.75, pytest.approx(11 / 6, rel=1e-5)]]
    assert curves["learning rate"] == [[2, 4, 6], [0.002, 0.004, 0.006]]
    assert curves["gradient norm"] == [[2, 4, 6], [0.5, 0.5, 0.5]]
    assert curves["validation loss"] == [[4, 6, 8], [1.5, 1.25, 1.75]]
    assert curves["perplexity"][1] == pytest.approx([math.exp(1.5), math.exp(1.25), math.exp(1.75)], rel=1e-5)
    assert curves["memory"] == [[2, 4, 6], [3, 7, 5]]
    assert curves["speed"] == [[4, 6], [13 * 2 / 2, 13 * 2 / 1]]
    assert run["clocks"]["tokens"] == [[2, 4, 6], [26, 52, 78]]
    assert run["clocks"]["hours"][1] == pytest.approx([10 / 3600, 12 / 3600, 13 / 3600], rel=1e-5)
    assert (run["best"], run["skipped"], run["means"]) == (6, [3], {})
    assert [chart["title"] for chart in found["charts"]] == [
        "Training loss",
        "Validation loss",
        "Validation perplexity",
        "Token accuracy",
        "Word error rate",
        "Learning rate",
        "Gradient norm",
        "Target tokens per second",
        "Memory (MiB)",
    ]


def test_the_summary_of_a_run(finished: Path) -> None:
    summary = shown(finished)["summary"]
    progress, best, machine = (table(summary, title) for title in ("Progress", "Best validation", "Machine"))
    assert progress["state"] == ["finished"] and progress["updates"] == ["8 of 8"]
    assert progress["skipped updates"] == ["1"] and progress["times resumed"] == ["0"]
    assert best["update"] == ["6"] and best["loss"] == ["1.25"]
    assert machine["training time"] == ["0 h 00 min 14 s"]
    assert machine["target tokens per second"] == ["20 (median)"]  # of 13 and 26, rounded to even
    assert machine["largest memory"] == ["7 MiB"] and machine["seed"] == ["3"]


def test_settings_data_and_events_are_shown(finished: Path) -> None:
    found = shown(finished)
    assert table(found["recipe"], "data") == {"separator": ["<b>"], "train.path": ["a.tsv"]}
    assert table(found["recipe"], "training") == {"updates": ["8"], "betas": ["[0.9, 0.98]"]}
    train = table(found["data"], "train")
    assert train["read"] == ["29,000"] and train["issues.duplicate.dropped"] == ["1,234"]
    assert found["runs"][0]["notes"] == {"rows": [["3", "skipped", "loss nan, norm inf"]], "earlier": 0}
    assert found["runs"][0]["checks"]["rows"][1] == ["6", "1.25", "3.49", "0.75", "0.3", "best so far"]


def test_an_event_that_nobody_foresaw_is_shown_all_the_same(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [{"event": "halved", "update": 5, "tokens": 512}, {"event": "x"}], [])
    assert shown(folder)["runs"][0]["notes"]["rows"] == [["", "x", ""], ["5", "halved", "tokens 512"]]


def test_two_runs_stand_beside_each_other(finished: Path, tmp_path: Path) -> None:
    other = folder_of(tmp_path / "second", [{"event": "began", "seed": 5}, update(3), check(3, 2.0, True, bleu=31.5)])
    (other / "recipe.toml").write_text("[training]\nupdates = 100\nmax_grad_norm = 1.0\n")
    found = shown(finished, other)
    assert [run["label"] for run in found["runs"]] == ["first", "second"]
    assert "BLEU" in [chart["title"] for chart in found["charts"]]
    assert table(found["recipe"], "training") == {
        "updates": ["8", "100"],
        "betas": ["[0.9, 0.98]", None],
        "max_grad_norm": [None, "1.0"],
    }
    assert table(found["summary"], "Progress")["updates"] == ["8 of 8", "3 of 100"]
    assert table(found["summary"], "Machine")["seed"] == ["3", "5"]


def test_runs_of_one_name_are_called_by_their_paths(tmp_path: Path) -> None:
    runs = [read_run(folder_of(tmp_path / parent / "run", [])) for parent in ("a", "b")]
    assert labels(runs) == [str(tmp_path / "a/run"), str(tmp_path / "b/run")]
    assert labels(runs[:1]) == ["run"]


# ---- thinning


@given(st.lists(st.floats(-1e6, 1e6), max_size=300), st.integers(4, 60))
@settings(max_examples=80, deadline=None)
def test_a_thinned_curve_keeps_its_ends_its_extremes_and_its_order(values: list[float], most: int) -> None:
    curve = list(enumerate(values))
    kept = thin(curve, most)
    assert len(kept) <= most or kept == curve
    assert kept == sorted(set(kept)) and set(kept) <= set(curve)
    if curve:
        assert kept[0] == curve[0] and kept[-1] == curve[-1]
        for extreme in (min, max):
            assert extreme(value for _, value in kept) == extreme(values)


def test_the_means_are_those_of_the_stretches() -> None:
    curve = [(10 * place, float(place**2 % 7)) for place in range(11 * 13)]
    found = means(curve, 13)
    assert [value for _, value in found] == [
        pytest.approx(statistics.fmean(value for _, value in curve[11 * i : 11 * (i + 1)])) for i in range(13)
    ]


def test_spreading_keeps_the_first_and_the_last() -> None:
    assert spread(range(5), 7) == [0, 1, 2, 3, 4]
    assert spread(range(101), 5) == [0, 25, 50, 75, 100]


def test_a_hundred_thousand_lines_make_a_small_page(tmp_path: Path) -> None:
    lines = [
        f'{{"event":"update","update":{n},"loss":{9 if n == 50_021 else 1 + n % 13}}}\n' for n in range(1, 100_001)
    ]
    times = [f'{{"event":"update","update":{n},"seconds":{n},"tokens":{n * 5}}}\n' for n in range(1, 100_001)]
    (tmp_path / "journal.jsonl").write_text("".join(lines))
    (tmp_path / "timing.jsonl").write_text("".join(times))
    record = read_run(tmp_path)
    (run,) = content([record])["runs"]
    for curve in (*run["curves"].values(), *run["means"].values(), *run["clocks"].values()):
        assert len(curve[0]) == len(curve[1]) <= 2000
    assert run["curves"]["loss"][0][-1] == 100_000 and max(run["curves"]["loss"][1]) == 13
    assert len(page([record])) < 400_000


# ---- runs that are not whole


def test_a_run_that_has_just_begun_has_a_page(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.close()
    assert shown(tmp_path)["charts"] == []
    assert table(shown(tmp_path)["summary"], "Progress")["updates"] == ["0"]
    folder_of(tmp_path, [{"event": "began", "seed": 1}])
    assert table(shown(tmp_path)["summary"], "Progress")["state"] == ["not finished: still running, or interrupted"]


def test_half_a_line_at_the_end_is_not_there_yet(tmp_path: Path) -> None:
    folder_of(tmp_path, [update(2), update(4)], [moment(2, 1.0)])
    for name in ("journal", "timing"):
        with (tmp_path / f"{name}.jsonl").open("ab") as file:
            file.write(b'{"event": "upd\xc3')
    assert shown(tmp_path)["runs"][0]["curves"]["loss"][0] == [2, 4]


def test_what_is_not_finite_is_left_out_of_curves_and_written_in_tables(tmp_path: Path) -> None:
    broken = check(4, math.inf, False, perplexity=None)
    folder = folder_of(tmp_path, [update(2, gradient_norm=math.nan), update(3, loss=10**400), broken])
    (run,) = shown(folder)["runs"]
    assert run["curves"]["gradient norm"] == [[3], [0.5]] and run["curves"]["loss"] == [[2], [5.5]]
    assert "validation loss" not in run["curves"] and "perplexity" not in run["curves"]
    assert run["checks"]["rows"] == [["4", "inf", "", "0.75", "0.3", ""]]


def test_a_damaged_recipe_or_report_is_an_error(finished: Path) -> None:
    (finished / "data" / "report.json").write_text("{")
    with pytest.raises(ModelFolderError, match=r"report\.json"):
        read_run(finished)
    (finished / "recipe.toml").write_text("= 3")
    with pytest.raises(SettingsError, match=r"recipe\.toml"):
        read_run(finished)


# ---- the page


@pytest.fixture
def whole(finished: Path) -> Page:
    return Page(page([read_run(finished)]))


def test_the_page_is_whole_and_alone(whole: Page, finished: Path) -> None:
    assert whole.open == []
    assert [tag for tag, _ in whole.elements].count("script") == 2
    identities = [attributes["id"] for _, attributes in whole.elements if "id" in attributes]
    assert len(identities) == len(set(identities))
    asked = set(re.findall(r'\$\("([\w-]+)"\)', whole.inside["script"]))
    assert asked and asked <= set(identities)
    assert not re.search(r"(?i)https?://|@import|url\(", page([read_run(finished)]))
    for tag, attributes in whole.elements:
        assert not {"src", "href", "srcset", "action", "style"} & set(attributes), tag
        assert not any(name.startswith("on") for name in attributes), tag
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", whole.inside["script"])


def test_hostile_text_comes_back_as_it_was(whole: Page) -> None:
    data = whole.inside["data"]
    assert data.isascii() and not set("<>&") & set(data)
    moments = json.loads(data)["runs"][0]["moments"]
    assert [moment["update"] for moment in moments] == [4, 6, 8]
    assert moments[0]["samples"] == SAMPLES


# ---- the command


def test_the_command_writes_the_page(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "page.html"
    other = folder_of(tmp_path / "second", [update(2)])
    before = sorted(path for path in finished.rglob("*"))
    assert run_command(["report", str(finished), str(other), "--output", str(output)]) == 0
    assert output.read_text(encoding="utf-8") == page([read_run(finished), read_run(other)])
    printed = capsys.readouterr().out
    assert "8 of 8 updates, finished" in printed and str(output) in printed
    assert sorted(path for path in finished.rglob("*")) == before


def test_the_command_rejects_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    output = tmp_path / "page.html"
    assert run_command(["report", str(tmp_path / "empty"), "--output", str(output)]) == 65
    assert capsys.readouterr().err.count("\n") == 1 and not output.exists()
    run = folder_of(tmp_path / "run", [])
    assert run_command(["report", str(run), "--against", str(tmp_path / "gone"), "--output", str(output)]) == 66
    assert not output.exists()
    with pytest.raises(CannotCreate):
        save_report([read_run(run)], tmp_path / "nowhere" / "page.html")
