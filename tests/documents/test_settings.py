"""docs/reference/settings.md has every setting of every table, with its values, its default and what it means."""

from __future__ import annotations

from tests.documents.settings_page import PAGE, page
from transduce.models.catalog import MODELS


def test_the_page_of_settings_is_what_the_settings_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: python -m tests.documents.settings_page"


def test_every_model_preset_and_setting_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, entry in MODELS.items():
        assert f"### `{name}`" in text
        for known in (*entry.presets, *entry.config.model_fields):
            assert f"`{known}`" in text, f"{known} of {name}"
