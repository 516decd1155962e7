"""What an operator gives and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from transduce.errors import SettingsError
from transduce.serving.job import ModelInfo
from transduce.serving.launch import LaunchSettings, _check_exposure, _description, _instructions, model_names

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
