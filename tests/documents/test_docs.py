"""The documents are true: what they name exists, what they show runs, what they promise is kept."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.documents.markdown import DOCUMENTS, ROOT, blocks, links, name, paths_named
from tests.invariants import test_models as laws
from tests.invariants.cases import Case, make_model
from tests.unit.test_layers import LAYERS, PACKAGE
from transduce import __version__
from transduce import model_folder as checkpoint
from transduce.models.catalog import MODELS
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import TransformerConfig
from transduce.training import checkpoint as resume
from transduce.training.config import TrainingConfig

DOCS = ROOT / "docs"
TOUR, ADDING = DOCS / "explanation/tour.md", DOCS / "how-to/add-a-model.md"
NOTATION = DOCS / "explanation/notation.md"
ADDED = DOCS / "examples" / "adding_a_model.py"
DECISIONS = sorted((DOCS / "explanation/decisions").glob("*.md"))
STOPS = ["text", "data", "nn", "models", "training", "decoding", "evaluation", "inspection"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_path_that_a_document_names_exists(document: Path) -> None:
    for path in paths_named(document):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_link_within_the_project_leads_somewhere(document: Path) -> None:
    for link in links(document):
        assert (document.parent / link).exists(), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_python_block_is_python(document: Path) -> None:
    for block in blocks(document, "python"):
        compile(block, name(document), "exec")


def test_the_walk_stops_once_in_every_folder_in_order() -> None:
    assert re.findall(r"^## \d+\. (\w+):", TOUR.read_text(encoding="utf-8"), re.MULTILINE) == STOPS
    sections = re.split(r"^## ", TOUR.read_text(encoding="utf-8"), flags=re.MULTILINE)[1 : len(STOPS) + 1]
    for stop, section in zip(STOPS, sections, strict=True):
        assert re.search(rf"Open `src/transduce/{stop}/[\w/]+\.py`", section), stop


def test_the_walk_runs_from_its_beginning_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    seen: dict[str, object] = {}
    for block in blocks(TOUR, "python"):
        exec(compile(block, "docs/explanation/tour.md", "exec"), seen)
    assert seen["translation"] == "a dog runs"
    assert seen["maps"].mean("cross").shape == (4, 4)  # type: ignore[attr-defined]
    assert "['ein', 'Hund', 'läuft'] ein Hund läuft" in capsys.readouterr().out


def test_names_of_the_notation_are_settings() -> None:
    text = NOTATION.read_text(encoding="utf-8")
    for setting in (
        "model_dim",
        "ffn_dim",
        "num_heads",
        "num_layers",
        "decoder_layers",
        "key_dim",
        "value_dim",
        "dropout",
    ):
        assert f"`{setting}`" in text and setting in TransformerConfig.model_fields
    for setting in ("label_smoothing", "warmup", "tokens"):
        assert f"`{setting}`" in text and setting in TrainingConfig.model_fields


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The page's model, in the catalog for as long as a test takes."""
    specification = importlib.util.spec_from_file_location("adding_a_model", ADDED)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "adding_a_model", module)
    specification.loader.exec_module(module)
    monkeypatch.setitem(MODELS, "bag", module.ENTRY)
    return module


def test_the_page_on_adding_a_model_shows_what_its_example_has() -> None:
    example = ADDED.read_text(encoding="utf-8")
    shown = blocks(ADDING, "python")
    assert len(shown) >= 5
    for block in shown:  # a method stands there without its indentation
        assert block in example or textwrap.indent(block, "    ") in example


@pytest.mark.parametrize("law", [law for law_name, law in vars(laws).items() if law_name.startswith("test_")])
def test_the_model_of_the_page_obeys_the_laws(added: ModuleType, law: Callable[..., None]) -> None:
    if "model" not in inspect.signature(law).parameters:
        return  # a check of the table of cases, not a law
    case = Case("bag", "bag", added.BagConfig(model_dim=7, ffn_dim=11), VocabularySizes(23, 29))
    further = {"rows": [3, 1, 1, 0], "ages": (2, 17), "width": 3}
    with torch.no_grad():
        law(
            case, make_model(case), **{key: further[key] for key in further if key in inspect.signature(law).parameters}
        )


def test_decisions_are_numbered_without_a_gap_and_have_their_three_parts() -> None:
    assert [int(path.name[:4]) for path in DECISIONS] == list(range(1, len(DECISIONS) + 1))
    for path in DECISIONS:
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {int(path.name[:4])}. "), path.name
        assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["Context", "Decision", "Consequences"], path.name


def test_the_decision_on_layers_is_what_is_enforced() -> None:
    (path,) = [path for path in DECISIONS if "layers" in path.name]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", path.read_text(encoding="utf-8"), re.MULTILINE)
    exists = {layer for layer in LAYERS if (PACKAGE / layer).is_dir() or (PACKAGE / f"{layer}.py").is_file()}
    assert {layer for layer, _ in rows} == exists - {"__init__", "__main__"}
    for layer, allowed in rows:
        if layer != "cli":
            assert set(re.findall(r"`(\w+)`", allowed)) == LAYERS[layer] & exists, layer


def test_the_changelog_is_of_this_version_and_says_which_saved_models_it_loads() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.split(r"^## ", text, flags=re.MULTILINE)[1]
    assert newest.startswith(f"{__version__}\n")
    assert checkpoint.FORMAT == resume.FORMAT == 1
    assert "### Saved models" in newest and "model folders of format 1" in newest
