"""The reference page on the APIs against the code."""

from __future__ import annotations

import re
from pathlib import Path

from transduce.config import Config
from transduce.serving.api import deepl, libretranslate, openai
from transduce.serving.api import openai_request as requests
from transduce.serving.api.compatible import Unsupported

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "serving-apis.md"


def named(heading: str) -> set[str]:
    """The parameters in the first column of the table of a route."""
    section = PAGE.read_text(encoding="utf-8").split(f"### `{heading}`", 1)[1].split("\n#", 1)[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_every_parameter_is_on_the_page_and_no_other() -> None:
    nothing: Unsupported = {}
    routes: tuple[tuple[str, type[Config], Unsupported], ...] = (
        ("POST /v1/completions", requests.CompletionRequest, requests.UNSUPPORTED_COMPLETION),
        ("POST /v1/chat/completions", requests.ChatRequest, requests.UNSUPPORTED_CHAT),
        ("POST /v1/embeddings", requests.EmbeddingRequest, nothing),
        ("POST /v2/translate", deepl.DeepLRequest, deepl.UNSUPPORTED),
        ("POST /translate", libretranslate.LibreTranslateRequest, nothing),
    )
    for route, config, unsupported in routes:
        assert named(route) == config.model_fields.keys() | unsupported.keys(), route


def test_every_route_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for api in (openai.API, deepl.API, libretranslate.API):
        for path in api.operations:
            assert re.sub(r":\w+}", "}", path) in text, path
