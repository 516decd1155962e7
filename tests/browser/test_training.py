"""A run that still trains, in a real browser: its curves follow the journal, before and after it has a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Visit
from tests.browser.served import studio
from tests.unit.inspection.run_example import check, folder_of, moment, update


@pytest.mark.long
def test_the_curves_of_a_run_without_a_model_grow_with_its_journal(chromium: Any, tmp_path: Path) -> None:
    run = folder_of(tmp_path / "young", [update(5)], [moment(5, 2.0)])
    with studio(str(run)) as address:
        visit = Visit(chromium, address)
        page = visit.open()
        page.get_by_text("No model has been saved yet").wait_for()
        assert page.locator("[data-tab]:visible").all_inner_texts() == ["Runs"]
        page.get_by_text("at update 5").first.wait_for()
        with (run / "journal.jsonl").open("a") as journal:
            journal.writelines(json.dumps(line) + "\n" for line in (update(11), check(11, 1.25, True)))
        page.get_by_text("at update 11").first.wait_for()
        visit.check()
        visit.context.close()
