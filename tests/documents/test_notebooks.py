"""The tutorials' notebooks are made from their Markdown, and run in a Jupyter kernel from beginning to end."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents.markdown import ROOT, load_script

GENERATOR = load_script("docs/generate_notebooks.py")


def executed(name: str, folder: Path) -> str:
    """Run a notebook in a folder of its own; return what its cells printed and showed."""
    shutil.copy(ROOT / "docs/tutorials" / f"{name}.ipynb", folder)
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_core", "execute", "--output", "executed.ipynb", f"{name}.ipynb"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "PATH": programs, "IPYTHONDIR": str(folder)},
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    cells = json.loads((folder / "executed.ipynb").read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return "".join("".join(output.get("text", output.get("data", {}).get("text/plain", ""))) for output in outputs)


def test_notebooks_are_made_from_the_tutorials() -> None:
    assert len(GENERATOR.TUTORIALS) == 3
    for tutorial in GENERATOR.TUTORIALS:
        current = tutorial.with_suffix(".ipynb").read_text(encoding="utf-8")
        assert current == GENERATOR.notebook(tutorial), f"{tutorial.name}: run `make reference`"


@pytest.mark.long
def test_the_first_model_reads_dates(tmp_path: Path) -> None:
    """Most of them: half a minute of training leaves a few per cent wrong, which ones depends on the processor."""
    shown = executed("first-model", tmp_path)
    assert sum(date in shown for date in ("2021-02-01", "1999-07-05", "2005-12-24", "1990-05-01")) >= 2
    (exact_match,) = re.findall(r"exact_match\|\S+ = (\d+\.\d+)[^\n]*confidence interval", shown)
    assert float(exact_match) >= 90
    assert "AttentionMaps" in shown and (tmp_path / "attention.html").is_file()


def test_six_questions_about_one_translation_are_answered(tmp_path: Path) -> None:
    shown = executed("inside", tmp_path)
    assert "heute sieht der Hund die Katze" in shown and "heute sieht die Kuh die Katze" in shown
    for name in ("beam-tree", "ablate", "lens", "attribute", "patch", "neuron"):
        assert (tmp_path / f"{name}.svg").read_text(encoding="utf-8").startswith("<svg")
    difference = float(re.findall(r"^(\d\.\d+e?-?\d*)$", shown, re.MULTILINE)[-1])
    assert difference < 1e-5


def test_the_paper_runs_on_a_sentence(tmp_path: Path) -> None:
    shown = executed("paper", tmp_path)
    assert "44,114,944 parameters" in shown
    assert "das Tier überquerte die Straße nicht weil es zu müde war" in shown
    assert shown.count("attends most to") == 12
