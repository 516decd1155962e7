"""The documents are true: what they name exists, what they show runs, what they promise is kept."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from types import ModuleType

import pytest
import torch

from tests.documents.markdown import DOCUMENTS, ROOT, blocks, links, load_script, name, paths_named
from tests.invariants import test_models as invariants
from tests.invariants.cases import Case, make_model
from tests.unit.test_layers import LAYERS, PACKAGE
from transduce import __version__
from transduce.models.catalog import MODELS
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import TransformerConfig
from transduce.storage.layout import FORMAT
from transduce.training.config import TrainingConfig

DOCS = ROOT / "docs"
TOUR, ADDING = DOCS / "explanation/tour.md", DOCS / "how-to/add-a-model.md"
NOTATION, LOG = DOCS / "explanation/notation.md", DOCS / "development/log.md"
DECISIONS = sorted(path for path in (DOCS / "explanation/decisions").glob("*.md") if path.stem != "index")
STOPS = ["text", "data", "nn", "models", "training", "inference", "evaluation", "inspection"]


def test_every_path_that_a_document_names_exists() -> None:
    """But for the log, whose entries name files as they were on their day."""
    named = {f"{name(page)}: {path}": ROOT / path for page in DOCUMENTS if page != LOG for path in paths_named(page)}
    assert len(named) > 200
    assert [where for where, path in named.items() if not path.exists()] == []


def test_every_link_within_the_project_leads_somewhere() -> None:
    linked = {f"{name(page)}: {link}": page.parent / link for page in DOCUMENTS for link in links(page)}
    assert len(linked) > 200
    assert [where for where, path in linked.items() if not path.exists()] == []


def test_every_page_is_reached_from_the_first() -> None:
    reached, pending = set(), [DOCS / "index.md"]
    while pending:
        page = pending.pop()
        if page not in reached:
            reached.add(page)
            pending += [(page.parent / link).resolve() for link in links(page) if link.endswith(".md")]
    assert [name(page) for page in DOCUMENTS if page not in reached] == []


def test_every_python_block_is_python() -> None:
    for document in DOCUMENTS:
        for block in blocks(document, "python"):
            if document.parent != DOCS / "reference":  # signatures
                compile(block, name(document), "exec")


def test_the_tour_stops_once_in_every_package_in_order() -> None:
    text = TOUR.read_text(encoding="utf-8")
    assert re.findall(r"^## \d+\. (\w+):", text, re.MULTILINE) == STOPS
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1 : len(STOPS) + 1]
    for stop, section in zip(STOPS, sections, strict=True):
        assert re.search(rf"Open `src/transduce/{stop}/[\w/]+\.py`", section), stop


def test_the_tour_runs_from_its_beginning_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    seen: dict[str, object] = {}
    for block in blocks(TOUR, "python"):
        exec(compile(block, "docs/explanation/tour.md", "exec"), seen)
    assert seen["translation"] == "a dog runs"
    assert seen["maps"].mean("cross").shape == (4, 4)  # type: ignore[attr-defined]
    assert "['ein', 'Hund', 'läuft'] ein Hund läuft" in capsys.readouterr().out


def test_names_of_the_notation_are_settings() -> None:
    text = NOTATION.read_text(encoding="utf-8")
    sizes = "model_dim ffn_dim num_heads num_layers decoder_layers key_dim value_dim dropout"
    for setting in sizes.split():
        assert f"`{setting}`" in text and setting in TransformerConfig.model_fields
    for setting in ("label_smoothing", "warmup", "batch_tokens"):
        assert f"`{setting}`" in text and setting in TrainingConfig.model_fields


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The model of the page on adding one, in the catalog for as long as a test takes."""
    module = load_script("docs/examples/adding_a_model.py")
    monkeypatch.setitem(MODELS, "bag", module.ENTRY)
    return module


def test_the_page_on_adding_a_model_shows_what_its_example_has() -> None:
    example = (DOCS / "examples/adding_a_model.py").read_text(encoding="utf-8")
    shown = blocks(ADDING, "python")
    assert len(shown) >= 5
    for block in shown:  # a method is shown without its indentation
        assert block in example or textwrap.indent(block, "    ") in example


@pytest.mark.parametrize("invariant", [test for key, test in vars(invariants).items() if key.startswith("test_")])
def test_the_added_model_obeys_the_invariants(added: ModuleType, invariant: Callable[..., None]) -> None:
    parameters = inspect.signature(invariant).parameters
    if "model" not in parameters:
        return  # a check of the table of cases
    case = Case("bag", "bag", added.BagConfig(model_dim=7, ffn_dim=11), VocabularySizes(23, 29))
    further = {"rows": [3, 1, 1, 0], "ages": (2, 17), "width": 3}
    with torch.no_grad():
        invariant(case, make_model(case), **{key: further[key] for key in further if key in parameters})


def test_decisions_are_numbered_without_a_gap_and_have_their_three_parts() -> None:
    assert [int(path.name[:4]) for path in DECISIONS] == list(range(1, len(DECISIONS) + 1))
    for path in DECISIONS:
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {int(path.name[:4])}. "), path.name
        assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["Context", "Decision", "Consequences"], path.name


def test_the_index_of_decisions_has_their_titles() -> None:
    index = (DOCS / "explanation/decisions/index.md").read_text(encoding="utf-8")
    for path in DECISIONS:
        title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        assert f"[{title}]({path.name})" in index


def test_the_decision_on_layers_is_what_is_enforced() -> None:
    (path,) = [path for path in DECISIONS if "layers" in path.name]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", path.read_text(encoding="utf-8"), re.MULTILINE)
    exists = {layer for layer in LAYERS if (PACKAGE / layer).is_dir() or (PACKAGE / f"{layer}.py").is_file()}
    assert {layer for layer, _ in rows} == exists - {"__init__", "__main__"}
    for layer, allowed in rows:
        if layer not in ("cli", "experiments"):
            assert set(re.findall(r"`(\w+)`", allowed)) == LAYERS[layer] & exists, layer


def test_the_log_has_an_index_of_its_entries() -> None:
    text = LOG.read_text(encoding="utf-8")
    index, _, entries = text.partition("<!-- entries begin here -->")
    for heading in re.findall(r"^## (.*)", entries, re.MULTILINE):
        assert f"- [{heading}](#" in index


def test_the_changelog_has_what_is_not_released_and_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert versions[0].startswith("Unreleased\n") and versions[1].startswith(f"{__version__}\n")
    headings = ["Added", "Changed", "Fixed", "Removed", "Saved models"]
    assert re.findall(r"^### (.*)", versions[0], re.MULTILINE) == headings
    saved = versions[0].partition("### Saved models")[2]
    assert f"model folders, checkpoints and prepared corpora of format {FORMAT}" in " ".join(saved.split())


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
