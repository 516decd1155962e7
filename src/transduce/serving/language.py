"""Language codes: which of a model's languages a client means, and how a model's language is spelled for clients.

Models write `de`, `deu`, `de_DE` or `deu_Latn`; clients write `de`, `DE`, `EN-US` or `zh-Hans`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from transduce.text.language_names import NAMES, PREFERRED

UNDETERMINED = "und"
"""ISO 639's code for a language that is not known: the language of a model whose folder does not state it."""

_ALIASES = {"zt": "zh-Hant", "zh-cn": "zh-Hans", "zh-sg": "zh-Hans", "zh-tw": "zh-Hant", "zh-hk": "zh-Hant"}
"""Codes that mean a language in a script."""
_DEFAULT_SCRIPTS = {"zh": "Hans", "sr": "Cyrl", "uz": "Latn", "az": "Latn", "mn": "Cyrl", "pa": "Guru", "ks": "Arab"}
"""The script that a code without a script stands for, of languages that are written in several."""
_MAX_CODE = 35
"""Characters of the longest code (RFC 5646, section 4.4.1)."""
_NO_REGION = "XX"
"""mBART's region of a language that it has only once."""
_SCRIPT_NAMES = {"Hans": "Simplified", "Hant": "Traditional", "Latn": "Latin", "Cyrl": "Cyrillic", "Arab": "Arabic"}
_REGION_NAMES = {"US": "American", "GB": "British", "BR": "Brazilian", "PT": "European"}


@dataclass(frozen=True)
class Tag:
    """A language, and its script and region where a code states them."""

    language: str
    script: str | None = None
    region: str | None = None

    @classmethod
    def parse(cls, code: str) -> Tag:
        """Read a code in any of the usual spellings."""
        code = code.strip().replace("_", "-")
        language, *subtags = _ALIASES.get(code.lower(), code).split("-")
        language = language.lower()
        script = next((part.title() for part in subtags if len(part) == 4 and part.isalpha()), None)
        region = next((part.upper() for part in subtags if len(part) in (2, 3) and part.isalnum()), None)
        return cls(PREFERRED.get(language, language), script, None if region == _NO_REGION else region)

    @property
    def effective_script(self) -> str | None:
        """The script, or the one that the language is written in by default."""
        return self.script or _DEFAULT_SCRIPTS.get(self.language)

    def serves(self, wanted: Tag) -> bool:
        """Whether a model's language is what a client wants: a script must be right, a region not contradicted.

        Clients of DeepL must choose EN-US or EN-GB; a model that states neither serves both.
        """
        same_region = self.region is None or wanted.region is None or self.region == wanted.region
        scripts = (self.effective_script, wanted.effective_script)
        same_script = None in scripts or scripts[0] == scripts[1]
        return self.language == wanted.language and same_region and same_script

    def __str__(self) -> str:
        return "-".join(part for part in (self.language, self.script, self.region) if part)


def matching(wanted: str, known: Sequence[str]) -> list[str]:
    """The codes of a model that a client's code can mean; one of them if it is spelled in full."""
    if wanted in known:
        return [wanted]
    if len(wanted) > _MAX_CODE:
        return []
    tag = Tag.parse(wanted)
    full = [code for code in known if Tag.parse(code) == tag]
    return full[:1] or [code for code in known if Tag.parse(code).serves(tag)]


@cache
def short_codes(known: tuple[str, ...]) -> dict[str, str]:
    """The shortest spelling of each code that means no other of them: `deu_Latn` -> `de`, `zho_Hant` -> `zh-Hant`."""
    spelled = {}
    for code in known:
        tag = Tag.parse(code)
        shorter = (Tag(tag.language), Tag(tag.language, tag.script), Tag(tag.language, None, tag.region))
        spelled[code] = next((str(one) for one in shorter if matching(str(one), known) == [code]), str(tag))
    return spelled


def language_name(code: str) -> str:
    """The English name of a language: `Chinese (Traditional)`; the code itself where there is no name."""
    if code.lower() == UNDETERMINED:
        return "Not stated"
    tag = Tag.parse(code)
    name = NAMES.get(tag.language, code)
    details = [_SCRIPT_NAMES.get(tag.script or "", tag.script), _REGION_NAMES.get(tag.region or "", tag.region)]
    given = ", ".join(detail for detail in details if detail)
    return f"{name} ({given})" if given and name != code else name
