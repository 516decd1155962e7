"""docs/reference is what the code says: the pages are generated again and compared."""

from __future__ import annotations

import pytest

import transduce
from tests.documents.markdown import load_script
from transduce.cli.main import transduce as program
from transduce.models.catalog import MODELS

GENERATOR = load_script("docs/generate_reference.py")


def text(name: str) -> str:
    return str((GENERATOR.FOLDER / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", GENERATOR.PAGES)
def test_a_page_is_current(name: str) -> None:
    assert text(name) == GENERATOR.PAGES[name](), "run `make reference`"


def test_every_command_and_option_is_in_the_reference() -> None:
    page = text("cli.md")
    context = program.make_context("transduce", [], resilient_parsing=True)
    for name in program.list_commands(context):
        section = page.partition(f"## transduce {name}\n")[2].partition("\n## transduce ")[0]
        command = program.get_command(context, name)
        assert section and command is not None, name
        for option in (option for parameter in command.params for option in parameter.opts):
            assert not option.startswith("--") or option in section or covered(option, section), f"{name} {option}"


def covered(option: str, section: str) -> bool:
    """Whether one line stands for several options: `--test-{source,target,path,text} FILE`."""
    stem, _, form = option.rpartition("-")
    return any(form in forms.split(",") for forms in section_forms(stem, section))


def section_forms(stem: str, section: str) -> list[str]:
    return [part.partition("}")[0] for part in section.split(f"{stem}-{{")[1:]]


def test_every_model_preset_and_setting_is_in_the_reference() -> None:
    page = text("settings.md")
    for name, entry in MODELS.items():
        assert f"### `{name}`" in page
        for known in (*entry.presets, *entry.config.model_fields):
            assert f"`{known}`" in page, f"{known} of {name}"


def test_every_public_name_is_in_the_reference() -> None:
    page = text("python.md")
    for name in transduce.__all__:
        assert name in ("__version__", "errors") or f"### transduce.{name}\n" in page
