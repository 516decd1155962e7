"""Help pages, settings, messages and errors are written in the field's language: none of our own old phrases occurs."""

from __future__ import annotations

from pathlib import Path

from tests.documents.words import SOURCE, Text, help_texts, messages, modules, settings_texts


def test_no_help_page_has_a_forbidden_phrase() -> None:
    pages = list(help_texts())
    assert len(pages) > 10 and all("Usage:" in page.text for page in pages)
    assert [fault for page in pages for fault in page.faults()] == []


def test_no_setting_is_described_with_a_forbidden_phrase() -> None:
    settings = [setting for setting in settings_texts() if setting.text]
    assert len(settings) > 150
    assert [fault for setting in settings for fault in setting.faults()] == []


def test_no_message_has_a_forbidden_phrase() -> None:
    found = [text for path in modules() for text in messages(path)]
    assert len(found) > 1000
    assert [fault for text in found for fault in text.faults()] == []


def test_a_planted_phrase_is_found_in_errors_warnings_and_printed_lines() -> None:
    """Also in a constant, inside an f-string, and across a line break; not in a docstring or a name."""
    planted = '''
"""A docstring may say opening."""
HINT = "go on with --resume"
NAME = "opening"
def fail(path):
    """Refused."""
    click.echo("two readers")
    reporter.warn(f"{path}: the loss ran "
                  "away")
    raise DataError(f"{path}: beams keep {3} openings")
'''
    found = [fault for text in messages(Path("planted.py"), planted) for fault in text.faults()]
    assert len(found) == 4
    for line, phrase in ((3, "go on"), (7, "readers"), (8, "ran away"), (10, "openings")):
        assert any(fault.startswith(f"planted.py:{line}:") and phrase in fault for fault in found)


def test_a_legitimate_use_is_allowed_but_not_the_same_word_elsewhere() -> None:
    assert Text("text/tokenizer/extension.py:7", "the merges of this tokenizer").faults() == []
    assert len(Text("text/tokenizer/extension.py:7", "merges of readers").faults()) == 1
    assert len(Text("models/block.py:7", "merges").faults()) == 1


def test_every_file_of_the_package_is_read() -> None:
    assert {SOURCE / "errors.py", SOURCE / "cli" / "main.py"} <= set(modules())
