"""DeepL's API, version 2: /v2/translate, /v2/languages, /v2/usage.

Parameters that a translation model cannot follow (formality, glossaries, context, tags, …) are rejected, unless their
value means the default.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

from pydantic import RootModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transduce.config import Config, Table
from transduce.serving.api.compatible import Unsupported, bad_request, boolean_of, is_json, supported
from transduce.serving.body import read_fields
from transduce.serving.http import (
    Api,
    Operation,
    RequestError,
    check_key,
    check_texts,
    client_of,
    parse,
)
from transduce.serving.language import language_name
from transduce.serving.language_pairs import LanguagePairs
from transduce.serving.large_work import json_response
from transduce.serving.service import Service

NO_LIMIT = 1_000_000_000_000
"""What DeepL states as the number of characters of an account without a limit."""
VARIANTS = {"EN": ("EN-GB", "EN-US"), "PT": ("PT-BR", "PT-PT")}
"""Target languages that DeepL's clients accept only with a region. A model that states none serves both."""

UNSUPPORTED: Unsupported = {
    "context": (None, ""),
    "custom_instructions": (None, []),
    "enable_beta_languages": (None, False, "0", "false"),
    "formality": (None, "default", "prefer_more", "prefer_less"),
    "glossary_id": (None, ""),
    "glossary_ids": (None, []),
    "ignore_tags": (None, []),
    "model_type": (None, "latency_optimized", "prefer_quality_optimized"),
    "non_splitting_tags": (None, []),
    "outline_detection": (None, True, "1", "true"),
    "splitting_tags": (None, []),
    "style_id": (None,),
    "tag_handling": (None, ""),
    "tag_handling_version": (None,),
    "translation_memory_id": (None,),
    "translation_memory_threshold": (None,),
}
"""Not supported, with the values that change nothing: DeepL itself falls back to the default for `prefer_…`."""


class AuthKeyRequest(Config):
    """A request without parameters."""

    auth_key: str | None = None
    """The server's key, where the Authorization header does not have it; DeepL's old way."""


class DeepLRequest(AuthKeyRequest):
    """Texts to translate."""

    text: str | list[str]
    """A text, or a list of texts."""
    target_lang: str
    """Code of the language to translate into, such as DE or EN-US."""
    source_lang: str | None = None
    """Code of the language of the texts; it is detected if there is none."""
    split_sentences: Literal["0", "1"] | None = "1"
    """Whether a text is translated sentence by sentence ("1") or as one sentence ("0")."""
    preserve_formatting: bool | None = None
    """The server never changes punctuation and upper case by rules of its own, so both values are the same."""
    show_billed_characters: bool | None = None
    """The characters of each text are always stated."""


class LanguagesRequest(AuthKeyRequest):
    """Which languages to list."""

    type: Literal["source", "target"] = "source"
    """Languages to translate from, or into."""


class DeepLTranslation(Config):
    """One translation."""

    detected_source_language: str
    """The language of the text, whether it was stated or detected."""
    text: str
    billed_characters: int
    """Characters of the text; nothing is billed."""


class DeepLResponse(Config):
    """Translations, one for each text."""

    translations: list[DeepLTranslation]


class DeepLLanguage(Config):
    """A language."""

    language: str
    """Its code."""
    name: str
    """Its English name."""
    supports_formality: Literal[False] = False
    """Stated of target languages."""


class DeepLLanguages(RootModel[list[DeepLLanguage]]):
    """The languages to translate from, or into."""


class DeepLUsage(Config):
    """Characters since the server was started."""

    character_count: int
    character_limit: int
    """DeepL's number for no limit."""


def error_body(status: int, message: str, parameter: str | None) -> Table:
    """DeepL's form of an error."""
    return {"message": message}


class _Endpoints:
    def __init__(self, service: Service) -> None:
        self.service = service
        self.pairs = LanguagePairs(service, "source_lang", "target_lang")
        self.characters: Counter[str] = Counter()
        """Characters since the server was started, by key; all clients without a key together."""

    async def translate(self, request: Request) -> Response:
        """Translate texts."""
        if request.method == "GET" and request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise RequestError(403, "requests from pages of other sites are rejected")
        fields = supported(await self._fields(request), UNSUPPORTED)
        if fields.get("split_sentences") == "nonewlines":
            raise RequestError(
                400, "split_sentences 'nonewlines' is not supported; remove the line breaks", "split_sentences"
            )
        asked = parse(DeepLRequest, fields, self.service.limits)
        texts = [asked.text] if isinstance(asked.text, str) else asked.text
        check_texts(texts, self.service.limits, "text")
        translated = await self.pairs.translate(
            request, texts, asked.source_lang or None, asked.target_lang, split=asked.split_sentences != "0"
        )
        self.characters[_account(request)] += sum(map(len, texts))
        return await json_response(
            request,
            {
                "translations": [
                    {
                        "detected_source_language": one.source.upper(),
                        "text": one.text,
                        "billed_characters": len(text),
                    }
                    for text, one in zip(texts, translated, strict=True)
                ]
            },
        )

    async def languages(self, request: Request) -> Response:
        """Return the languages to translate from or into."""
        asked = parse(LanguagesRequest, await self._fields(request), self.service.limits)
        if asked.type == "source":
            codes = [code.upper() for code in self.pairs.targets()]
            return JSONResponse([{"language": code, "name": language_name(code)} for code in codes])
        codes = [code.upper() for code in self.pairs.all_targets()]
        spelled = [variant for code in codes for variant in VARIANTS.get(code, (code,))]
        return JSONResponse(
            [{"language": code, "name": language_name(code), "supports_formality": False} for code in spelled]
        )

    async def usage(self, request: Request) -> Response:
        """Return the characters that this key has had translated since the server was started; there is no limit."""
        parse(AuthKeyRequest, await self._fields(request), self.service.limits)
        return JSONResponse({"character_count": self.characters[_account(request)], "character_limit": NO_LIMIT})

    async def _fields(self, request: Request) -> Table:
        """The parameters; raises RequestError (403) without an accepted key."""
        fields = await read_fields(request, self.service.limits)
        key = fields.get("auth_key")
        if not check_key(request, key if isinstance(key, str) else None):
            raise RequestError(403, "this server needs a key: give it as 'Authorization: DeepL-Auth-Key …'")
        if not is_json(request):
            boolean_of(fields, "preserve_formatting")
            boolean_of(fields, "show_billed_characters")
        return fields


def _account(request: Request) -> str:
    client = client_of(request)
    return client if client.startswith("key:") else ""


def routes(service: Service) -> list[Route]:
    """The routes of the API. DeepL accepts GET requests too, and older clients use them."""
    endpoints = _Endpoints(service)
    either = ["GET", "POST"]
    return [
        Route("/v2/translate", bad_request(endpoints.translate), methods=either),
        Route("/v2/languages", bad_request(endpoints.languages), methods=either),
        Route("/v2/usage", bad_request(endpoints.usage), methods=either),
    ]


API = Api(
    name="DeepL",
    routes=routes,
    error_body=error_body,
    invalid=400,
    unauthorized=403,
    key_in_body=True,
    operations={
        "/v2/translate": Operation(
            DeepLRequest,
            DeepLResponse,
            forms=True,
            example={"text": ["Guten Morgen"], "source_lang": "DE", "target_lang": "EN-US"},
        ),
        "/v2/languages": Operation(LanguagesRequest, DeepLLanguages, forms=True),
        "/v2/usage": Operation(AuthKeyRequest, DeepLUsage, forms=True),
    },
)
