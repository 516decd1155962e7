"""What an operator gives and what is made of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from transduce.errors import DataError, SettingsError
from transduce.serving.job import ModelInfo
from transduce.serving.launch import (
    LaunchSettings,
    _allowed_hosts,
    _check_exposure,
    _description,
    _instructions,
    load_keys,
    model_names,
)

INFO = ModelInfo(
    "de-en", "translation", "torch", "int8", 5_000_000, ("de",), ("en",), architecture="Transformer", memory_bytes=2**30
)


def test_models_are_named_by_their_folders() -> None:
    assert model_names(["runs/de-en", "runs/en-de/model", "mine=/a/b"]) == {
        "de-en": "runs/de-en",
        "en-de": "runs/en-de/model",
        "mine": "/a/b",
    }
    assert list(model_names([str(Path())])) == [Path.cwd().name]


@pytest.mark.parametrize("folders", [["a/x", "b/x"], ["=a"], ["x="]])
def test_names_must_be_there_and_differ(folders: list[str]) -> None:
    with pytest.raises(SettingsError, match="NAME"):
        model_names(folders)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_this_machine_needs_no_key(host: str) -> None:
    _check_exposure(LaunchSettings(["x"], host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "translate.example.org", "10.0.0.1"])
def test_other_machines_need_a_key(host: str) -> None:
    with pytest.raises(SettingsError, match="--api-key-file"):
        _check_exposure(LaunchSettings(["x"], host=host))
    _check_exposure(LaunchSettings(["x"], host=host, api_keys=("k",)))


def test_keys_come_from_three_places(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("one\n\n two \n")
    assert load_keys(["given"], "environment", str(file)) == ("given", "environment", "one", "two")
    assert load_keys([], None, None) == load_keys([], "", None) == ()


@pytest.mark.parametrize("key", ["", " ", "with space", "ümlaut", "bell\a"])
def test_a_key_that_no_header_can_hold_is_rejected(key: str) -> None:
    with pytest.raises(DataError, match="key"):
        load_keys([key], None, None)


def test_a_file_without_a_key_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("\n")
    with pytest.raises(DataError, match="no key"):
        load_keys(["another"], None, str(tmp_path / "keys"))


@pytest.mark.parametrize(
    ("host", "names"), [("0.0.0.0", ()), ("::", ()), ("192.168.1.5", ("192.168.1.5",)), ("me", ())]
)
def test_the_address_of_a_server_is_a_name_of_it(host: str, names: tuple[str, ...]) -> None:
    assert _allowed_hosts(LaunchSettings(["x"], host=host, allowed_hosts=("a",))) == ("a", *names)


def test_the_example_names_a_language_where_one_is_needed() -> None:
    several = replace(INFO, target_languages=("fr", "it"))
    assert '"target_language": "fr"' in _instructions(LaunchSettings(["x"]), 80, several, 1.0)[1]
    default = replace(several, default_target="it")
    assert "target_language" not in _instructions(LaunchSettings(["x"]), 80, default, 1.0)[1]


def test_limits_are_those_of_the_operator() -> None:
    usual, own = LaunchSettings(["x"]).limits, LaunchSettings(["x"], max_queue_tokens=5, timeout=1.5).limits
    assert (own.max_queue_tokens, own.timeout, own.max_texts) == (5, 1.5, usual.max_texts)


def test_what_is_printed_can_be_pasted() -> None:
    assert "de → en" in _description(INFO, 2) and "2 processes with at most 1.0 GiB of memory each" in _description(
        INFO, 2
    )
    lines = _instructions(LaunchSettings(["x"], host="::1", api_keys=("secret",)), 80, INFO, 1.25)
    assert "http://[::1]:80/v1/translate" in lines[1] and "YOUR_KEY" in lines[1]
    assert "secret" not in "".join(lines)
