"""LibreTranslate's API: /translate, /detect, /languages, /frontend/settings.

Its clients send JSON, forms, or everything in the query string of a POST request, and a GET request with a body. Files,
suggestions and HTML are not offered.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, RootModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transduce.config import Config, Table
from transduce.serving.api.compatible import at_most, bad_request, is_json, number_of
from transduce.serving.body import read_fields
from transduce.serving.detection import Detection
from transduce.serving.http import (
    Api,
    Operation,
    RequestError,
    check_key,
    check_texts,
    parse,
)
from transduce.serving.language import UNDETERMINED, language_name
from transduce.serving.language_pairs import LanguagePairs, Translated
from transduce.serving.large_work import json_response
from transduce.serving.service import Service

AUTO = "auto"
"""The source language that the server detects."""


class ApiKeyRequest(Config):
    """A request without parameters."""

    api_key: str | None = None
    """The server's key, where it needs one and the Authorization header does not have it."""


class LibreTranslateRequest(ApiKeyRequest):
    """Texts to translate."""

    q: str | list[str]
    """A text, or a list of texts."""
    source: str
    """Code of the language of the texts, or "auto" to detect it."""
    target: str
    """Code of the language to translate into."""
    format: Literal["text"] | None = "text"
    """Only plain text is translated."""
    alternatives: Annotated[int, Field(ge=0)] | None = 0
    """How many other translations to return for each text."""


class DetectRequest(ApiKeyRequest):
    """A text whose language is detected."""

    q: str
    """The text."""


class DetectedLanguage(Config):
    """A language that a text can be in."""

    confidence: float
    """Probability in percent, among the languages that the server translates from."""
    language: str


class DetectResponse(RootModel[list[DetectedLanguage]]):
    """Languages, likeliest first."""


class LibreTranslateResponse(Config):
    """What was translated: a text for a text, a list for a list."""

    translatedText: str | list[str]
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None
    """Where the source language is "auto"."""
    alternatives: list[str] | list[list[str]] | None = None
    """Other translations, where requested."""


class LibreTranslateLanguage(Config):
    """A language."""

    code: str
    name: str
    """Its English name."""
    targets: list[str]
    """Languages that it can be translated into."""


class LibreTranslateLanguages(RootModel[list[LibreTranslateLanguage]]):
    """All languages of the server."""


def error_body(status: int, message: str, parameter: str | None) -> Table:
    """LibreTranslate's form of an error."""
    return {"error": message}


class _Endpoints:
    def __init__(self, service: Service) -> None:
        self.service = service
        self.pairs = LanguagePairs(service, "source", "target")

    async def translate(self, request: Request) -> Response:
        """Translate a text or a list of texts."""
        fields = await self._fields(request)
        if fields.get("format") == "html":
            raise RequestError(
                400, "format 'html' is not supported, its tags would be translated as text; send plain text", "format"
            )
        asked = parse(LibreTranslateRequest, fields, self.service.limits)
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        if asked.q == "":
            raise RequestError(400, "q is empty; give a text", "q")
        check_texts(texts, self.service.limits, "q")
        others = asked.alternatives or 0
        at_most(others, self.service.limits.max_n_best - 1, "alternatives")
        source = None if asked.source == AUTO else asked.source
        search = {"n_best": others + 1} if others else {}
        translated = await self.pairs.translate(request, texts, source, asked.target, search)
        return await json_response(request, _answer(translated, isinstance(asked.q, str), others > 0))

    async def detect(self, request: Request) -> Response:
        """Return the languages that a text can be in, likeliest first, among those that the server translates from."""
        asked = parse(DetectRequest, await self._fields(request), self.service.limits)
        if asked.q == "":
            raise RequestError(400, "q is empty; give a text", "q")
        check_texts([asked.q], self.service.limits, "q")
        sources = [code for code in self.pairs.targets() if code != UNDETERMINED]
        if not sources:
            raise RequestError(400, "the models of this server do not state their languages; nothing can be detected")
        found = await self.pairs.rank(asked.q, sources)
        return JSONResponse([_detected(one) for one in found if one.confidence > 0])

    async def languages(self, request: Request) -> Response:
        """Return the languages of the server, each with those that it can be translated into."""
        parse(ApiKeyRequest, await self._fields(request), self.service.limits)
        targets = self.pairs.targets()
        codes = dict.fromkeys((*targets, *self.pairs.all_targets()))
        return JSONResponse(
            [{"code": code, "name": language_name(code), "targets": targets.get(code, [])} for code in codes]
        )

    async def settings(self, request: Request) -> Response:
        """Return what LibreTranslate's own web page needs to know."""
        parse(ApiKeyRequest, await self._fields(request), self.service.limits)
        limits = self.service.limits
        needs_key = bool(request.app.state.keys.required)
        target = next(iter(self.pairs.all_targets()), UNDETERMINED)
        return JSONResponse(
            {
                "charLimit": limits.max_characters,
                "frontendTimeout": 500,
                "apiKeys": needs_key,
                "keyRequired": needs_key,
                "suggestions": False,
                "filesTranslation": False,
                "supportedFilesFormat": [],
                "language": {
                    "source": {"code": AUTO, "name": "Auto Detect"},
                    "target": {"code": target, "name": language_name(target)},
                },
            }
        )

    async def _fields(self, request: Request) -> Table:
        """The parameters; raises RequestError (403) without an accepted key."""
        fields = await read_fields(request, self.service.limits)
        key = fields.get("api_key")
        if not check_key(request, key if isinstance(key, str) else None):
            raise RequestError(403, "this server needs a key: give it as api_key", "api_key")
        if not is_json(request):
            number_of(fields, "alternatives")
        return fields


def _answer(translated: list[Translated], single: bool, alternatives: bool) -> Table:
    answer: dict[str, list[Any]] = {"translatedText": [one.text for one in translated]}
    if translated[0].detected is not None:
        answer["detectedLanguage"] = [_detected(one.detected) for one in translated if one.detected is not None]
    if alternatives:
        answer["alternatives"] = [[other["text"] for other in one.hypotheses[1:]] for one in translated]
    return {name: values[0] for name, values in answer.items()} if single else dict(answer)


def _detected(detection: Detection) -> Table:
    return {"confidence": detection.confidence, "language": detection.language}


def routes(service: Service) -> list[Route]:
    """The routes of the API."""
    endpoints = _Endpoints(service)
    return [
        Route("/translate", bad_request(endpoints.translate), methods=["POST"]),
        Route("/detect", bad_request(endpoints.detect), methods=["POST"]),
        Route("/languages", bad_request(endpoints.languages), methods=["GET"]),
        Route("/frontend/settings", bad_request(endpoints.settings), methods=["GET"]),
    ]


API = Api(
    name="LibreTranslate",
    routes=routes,
    error_body=error_body,
    invalid=400,
    unauthorized=403,
    key_in_body=True,
    operations={
        "/translate": Operation(
            LibreTranslateRequest,
            LibreTranslateResponse,
            forms=True,
            example={"q": "Guten Morgen", "source": "de", "target": "en"},
        ),
        "/detect": Operation(DetectRequest, DetectResponse, forms=True, example={"q": "Guten Morgen"}),
        "/languages": Operation(ApiKeyRequest, LibreTranslateLanguages, forms=True),
        "/frontend/settings": Operation(ApiKeyRequest, forms=True),
    },
)
