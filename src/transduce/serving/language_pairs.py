"""Translation requests that name languages instead of a model: LibreTranslate's, DeepL's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from starlette.requests import Request

from transduce.config import Table
from transduce.errors import TransduceError
from transduce.serving.backend import Backend
from transduce.serving.detection import DETECTOR, Detection
from transduce.serving.http import RequestError, run_jobs
from transduce.serving.job import ModelInfo, TranslateJob
from transduce.serving.language import UNDETERMINED, matching, short_codes
from transduce.serving.service import Service

_SHORT = 40
"""Characters below which a text's language is that of all texts of the request; a few words tell too little."""


@dataclass(frozen=True)
class Route:
    """A model and the languages that it translates between."""

    backend: Backend
    source: str
    """As clients spell it; `und` if the model does not state it."""
    source_language: str | None
    """As the model spells it; None for its default."""
    target_language: str | None


@dataclass(frozen=True)
class Translated:
    """A text's translations and the language of the text."""

    source: str
    detected: Detection | None
    """Set where the client left the source language to the server."""
    hypotheses: list[Table]
    """Best first; job.py describes them."""

    @property
    def text(self) -> str:
        """The best translation."""
        return str(self.hypotheses[0]["text"])


class LanguagePairs:
    """What the translation models of a server translate between."""

    def __init__(self, service: Service, source_parameter: str, target_parameter: str) -> None:
        """The parameters are those in which the API's clients state languages; errors name them."""
        self.service = service
        self.source_parameter = source_parameter
        self.target_parameter = target_parameter

    def targets(self) -> dict[str, list[str]]:
        """Each source language and the languages that it can be translated into, as clients spell them."""
        found: dict[str, dict[str, None]] = {}
        for backend in self.service.of_task("translation"):
            source_codes, target_codes = _spelled(backend.info)
            for code in source_codes:
                others = [other for other in target_codes if other != code or code == UNDETERMINED]
                found.setdefault(code, {}).update(dict.fromkeys(others))
        return {code: list(codes) for code, codes in found.items()}

    def all_targets(self) -> list[str]:
        """All languages that something can be translated into, as clients spell them."""
        several = (_spelled(backend.info)[1] for backend in self.service.of_task("translation"))
        return list(dict.fromkeys(code for codes in several for code in codes))

    def find(self, source: str, target: str) -> Route:
        """Return the first model that translates between two languages; raises RequestError."""
        self.service.find("translation")
        ambiguity: RequestError | None = None
        for backend in self.service.of_task("translation"):
            info = backend.info
            sources, targets = _matching(source, info.source_languages), _matching(target, info.target_languages)
            if len(sources) == len(targets) == 1:
                spelled = short_codes(_all_codes(info))
                return Route(
                    backend,
                    spelled.get(sources[0], UNDETERMINED),
                    _unless_default(sources[0], info.default_source),
                    _unless_default(targets[0], info.default_target),
                )
            if sources and targets and ambiguity is None:
                ambiguity = _ambiguity(source, [info.source_languages], self.source_parameter) or _ambiguity(
                    target, [info.target_languages], self.target_parameter
                )
        raise ambiguity or self._unsupported(source, target)

    async def detect(self, texts: Sequence[str], target: str | None) -> list[Detection]:
        """Return the language of each text, among those that can be translated into the target language.

        `und` stands for the language of models that do not state it.
        """
        sources = [code for code in self._sources_of(target) if code != UNDETERMINED]
        if not sources:
            return [Detection(UNDETERMINED, 0.0)] * len(texts)
        overall = (await self.rank("\n".join(texts), sources))[0]
        long = [text for text in texts if len(text) > _SHORT] if len(texts) > 1 else []
        own = {text: (await self.rank(text, sources))[0] for text in dict.fromkeys(long)}
        return [own.get(text, overall) for text in texts]

    async def rank(self, text: str, sources: Sequence[str]) -> list[Detection]:
        """Return source languages by how probable they are; raises RequestError if they cannot be told apart."""
        try:
            return await asyncio.to_thread(DETECTOR.rank, text, sources)
        except TransduceError as error:
            raise RequestError(400, str(error), self.source_parameter) from None

    async def translate(
        self,
        request: Request,
        texts: Sequence[str],
        source: str | None,
        target: str,
        search: Table | None = None,
        split: bool = True,
    ) -> list[Translated]:
        """Translate texts, in one job for each source language, all at the same time; without one it is detected."""
        detections: list[Detection | None] = [None] * len(texts)
        if source is None:
            detections = [*await self.detect(texts, target)]
        codes = [(source or "") if found is None else found.language for found in detections]
        routes = {code: self.find(code, target) for code in dict.fromkeys(codes)}
        places = {code: [place for place, other in enumerate(codes) if other == code] for code in routes}
        jobs = [
            TranslateJob(
                texts=[texts[place] for place in places[code]],
                source_language=route.source_language,
                target_language=route.target_language,
                search=search or {},
                split=split,
            )
            for code, route in routes.items()
        ]
        backends = [route.backend for route in routes.values()]
        results = await run_jobs(request, self.service, list(zip(backends, jobs, strict=True)))
        translated: dict[int, Translated] = {}
        for (code, route), result in zip(routes.items(), results, strict=True):
            for place, hypotheses in zip(places[code], result["translations"], strict=True):
                translated[place] = Translated(route.source, detections[place], hypotheses)
        return [translated[place] for place in range(len(texts))]

    def _sources_of(self, target: str | None) -> list[str]:
        """The languages that can be translated into one; into any, for None."""
        found: dict[str, None] = {}
        for backend in self.service.of_task("translation"):
            codes, _ = _spelled(backend.info)
            if target is None or len(_matching(target, backend.info.target_languages)) == 1:
                found.update(dict.fromkeys(codes))
        if not found and target is not None:
            self.service.find("translation")
            raise self._unsupported(UNDETERMINED, target)
        return list(found)

    def _unsupported(self, source: str, target: str) -> RequestError:
        """The error for a pair that no model has: a language is ambiguous or unknown, or only the pair is."""
        infos = [backend.info for backend in self.service.of_task("translation")]
        for wanted, parameter, sides in (
            (target, self.target_parameter, [info.target_languages for info in infos]),
            (source, self.source_parameter, [info.source_languages for info in infos]),
        ):
            if any(len(_matching(wanted, side)) == 1 for side in sides):
                continue
            ambiguity = _ambiguity(wanted, sides, parameter)
            if ambiguity is not None:
                return ambiguity
            if wanted.lower() != UNDETERMINED and not all(sides):
                return RequestError(
                    400,
                    f"{parameter} '{wanted[:40]}' is not known: the model does not state its languages; give "
                    f"'{UNDETERMINED}', or ask the operator of the server to state them",
                    parameter,
                )
            codes = self.all_targets() if parameter == self.target_parameter else list(self.targets())
            return RequestError(
                400, f"{parameter} '{wanted[:40]}' is not supported; choose from {', '.join(codes[:50])}", parameter
            )
        return RequestError(
            400,
            f"no model translates from '{source[:40]}' into '{target[:40]}'; {self.target_parameter} can be "
            f"{', '.join(self.targets().get(source, [])[:50]) or 'nothing'}",
            self.target_parameter,
        )


def _all_codes(info: ModelInfo) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*info.source_languages, *info.target_languages)))


def _spelled(info: ModelInfo) -> tuple[list[str], list[str]]:
    """A model's source and target languages as clients spell them; `und` where it does not state them."""
    spelled = short_codes(_all_codes(info))
    source, target = (
        [spelled[code] for code in codes] or [UNDETERMINED] for codes in (info.source_languages, info.target_languages)
    )
    return source, target


def _matching(wanted: str, known: Sequence[str]) -> list[str]:
    """The model's languages that can be meant: one, none, or several if the code is ambiguous."""
    if not known:
        return [UNDETERMINED] if wanted.lower() == UNDETERMINED else []
    return matching(wanted, known)


def _ambiguity(wanted: str, sides: Iterable[Sequence[str]], parameter: str) -> RequestError | None:
    """The error for a code that can mean several languages of a model: of the first such model."""
    for known in sides:
        found = _matching(wanted, known)
        if len(found) > 1:
            spelled = short_codes(tuple(known))
            choices = ", ".join(spelled[code] for code in found)
            return RequestError(
                400, f"{parameter} '{wanted[:40]}' can mean several languages; choose from {choices}", parameter
            )
    return None


def _unless_default(code: str, default: str | None) -> str | None:
    return None if code in (default, UNDETERMINED) else code
