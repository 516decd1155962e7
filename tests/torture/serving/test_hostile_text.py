"""R19: any text is answered as text, twice the same; what is none is rejected."""

from __future__ import annotations

import json
import random
import unicodedata
from typing import Any

from tests.torture.example import Tally, sizes
from tests.torture.serving.routes import FORM
from tests.torture.serving.target import Answer, Client, Target, percentile

SPECIAL = [
    "</s>", "<s>", "<pad>", "<unk>", "<bos>", "<eos>", "<mask>", "[CLS]", "[SEP]", "[MASK]", "[PAD]", "<|endoftext|>",
    "<|im_start|>", "▁", "<0x0A>", ">>de<<", ">>fr<< text", "__de__", "deu_Latn", "<2de>", "@@", "##ing", "{name}",
    "%s",
    "</s></s></s>", "a </s> b", "<pad>" * 100, "\u2581\u2581", "<extra_id_0>", ">>" * 1000, ">>" + "a" * 1000 + "<<",
]  # fmt: skip
SPECIAL_SAMPLE = SPECIAL[:6]
BLANKS = ["", " ", "\t", "\n", "\r\n", "\u00a0", "\u2028", "\u2029", "\u200b", "\ufeff", "\u3000", "\x0b\x0c", "\x85"]
CONTROLS = [
    "\0", "a\0b", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x7f", "\b\b\b", "\x9b31m", "\u202e gnp.exe",
    "\u2066a\u2069",
    "\u200f\u200e", "\ufffe", "\uffff", "\U0010ffff", "\ue000", "\u00ad" * 50, "\u206f", "\U000e0041\U000e0042",
]  # fmt: skip
EMOJI = [
    "👨‍👩‍👧‍👦",
    "🏳️‍🌈",
    "🇩🇪🇫🇷",
    "👍🏿",
    "e\u0301",
    "\u0301",
    "Z" + "\u0335\u0321\u0489" * 300,
    "ﷺ",
    "ﬁ",
    "İ",
    "ß" * 100,
]
MARKUP = [
    "<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "</script>", "<!--", "]]>", "{{7*7}}", "${7*7}",
    "' OR 1=1 --", "; rm -rf /", "$(id)", "`id`", "../../etc/passwd", "%00", "%n%n%n%n", "\\", "\\u0000", '"',
    "data: x\n\n",
    "\r\nX-Injected: 1\r\n\r\n", "file:///etc/passwd", "http://169.254.169.254/", "(a+)+$", "a" * 30 + "!",
    "\\\\host\\share",
]  # fmt: skip
LONG = [
    "a" * 49_999,
    "ab " * 16_000,
    "." * 40_000,
    "\n" * 40_000,
    "😀" * 12_000,
    "a.\n" * 16_000,
    "«" * 45_000,
    "Dr. " * 10_000,
]
TOO_LONG = ["a" * 1_000_000, " " * 1_000_000, "中" * 300_000, "\0" * 60_000]
NO_TEXT = [
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf5\x80\x80\x80",
    b"\xc0\xaf",
    b"a\xfe",
    b"\\ud800",
    b"\\udfff\\ud800",
    b"\\x00",
]
"""Bytes inside the quotes of a JSON string that are no text: bad UTF-8, half a surrogate pair, an unknown escape."""


def texts(size: int) -> list[str]:
    """As many texts: those above, and others drawn from all of Unicode."""
    draw = random.Random(19)
    fixed = [*SPECIAL, *BLANKS, *CONTROLS, *EMOJI, *MARKUP, *LONG, *TOO_LONG]
    drawn = ["".join(chr(_code(draw)) for _ in range(draw.choice((1, 3, 20, 200)))) for _ in range(size)]
    chosen = fixed if size > len(fixed) else [*SPECIAL_SAMPLE, *draw.sample(fixed, size - len(SPECIAL_SAMPLE))]
    return (chosen + drawn)[:size]


def _code(draw: random.Random) -> int:
    while True:
        code = draw.randrange(draw.choice((0x80, 0x800, 0x10000, 0x110000)))
        if unicodedata.category(chr(code)) != "Cs":
            return code


def routes(text: Any) -> dict[str, tuple[str, object]]:
    """Every place of every route that takes text of a client, with the body that has it there."""
    chat = {"model": "de-en", "messages": [{"role": "user", "content": text}]}
    return {
        "text": ("/v1/translate", {"text": text}),
        "list": ("/v1/translate", {"text": [text, "a"]}),
        "unsplit": ("/v1/translate", {"text": text, "split": False, "placeholders": True}),
        "prefix": ("/v1/translate", {"text": "a", "prefix": text}),
        "glossary": ("/v1/translate", {"text": "a", "glossary": {text: text}}),
        "forbid": ("/v1/translate", {"text": "a", "forbid": [text]}),
        "stop": ("/v1/translate", {"text": "a", "stop": [text]}),
        "model": ("/v1/translate", {"text": "a", "model": text}),
        "language": ("/v1/translate", {"text": "a", "source_language": text}),
        "parameter": ("/v1/translate", {"text": "a", text: text}),
        "stream": ("/v1/translate", {"text": text, "stream": True}),
        "generate": ("/v1/generate", {"prompt": text}),
        "predict": ("/v1/predict", {"text": [text, [text, "a"]]}),
        "embed": ("/v1/embed", {"text": text}),
        "completions": ("/v1/completions", {"model": "gpt", "prompt": text, "echo": True, "user": text}),
        "chat": ("/v1/chat/completions", chat),
        "chat stream": ("/v1/chat/completions", {**chat, "stream": True}),
        "embeddings": ("/v1/embeddings", {"model": "bert", "input": text}),
        "deepl": ("/v2/translate", {"text": [text], "source_lang": "DE", "target_lang": "EN"}),
        "deepl detect": ("/v2/translate", {"text": [text], "target_lang": "EN"}),
        "deepl language": ("/v2/translate", {"text": ["a"], "target_lang": text}),
        "libretranslate": ("/translate", {"q": text, "source": "de", "target": "en"}),
        "libretranslate detect": ("/translate", {"q": text, "source": "auto", "target": "en"}),
        "detect": ("/detect", {"q": text}),
    }


def what_it_says(answer: Answer) -> bytes:
    """The body without what is new in each answer: ids and times."""
    parts = answer.body.split(b"\n")
    return b"\n".join(_without_ids(part) for part in parts)


def _without_ids(line: bytes) -> bytes:
    for start in (b'"id":', b'"id": ', b'"created":', b'"created": '):
        before, found, after = line.partition(start)
        if found:
            line = before + after.partition(b",")[2]
    return line


@sizes(12, 500)
def test_hostile_texts_are_texts(size: int, target: Target, tally: Tally) -> None:
    seconds: list[float] = []
    sent = 0
    with Client(target) as client:
        for text in texts(size):
            for name, (path, body) in routes(text).items():
                first, second = client.post(path, body), client.post(path, body)
                sent += 1
                assert first.status == 200 or 400 <= first.status < 500, (name, text[:80], first)
                assert (first.status, what_it_says(first)) == (second.status, what_it_says(second)), (name, text[:80])
                assert (len(text) <= 50_000) or first.status in (400, 404, 413, 422), (name, len(text))
                assert b"\x1b" not in first.body, (name, text[:80])
                seconds += [first.seconds, second.seconds]
                if target.is_fake and first.status == 200 and name in ("text", "list", "unsplit"):
                    assert first.json()["translations"][0]["text"] == text.upper(), text[:80]
            if target.is_fake and text in SPECIAL:
                assert client.post("/v1/translate", {"text": text}).status == 200, text
    note = f", twice each, p99 {percentile(seconds, 0.99):.1f} ms, longest {1000 * max(seconds):.0f} ms"
    tally(f"hostile texts in {len(routes(''))} places of the routes", sent, note)


def test_what_is_no_text_is_rejected(target: Target) -> None:
    """As raw bytes, because no JSON library writes them."""
    with Client(target) as client:
        for raw in NO_TEXT:
            for name, (path, body) in routes("TEXT").items():
                data = json.dumps(body).encode().replace(b"TEXT", raw)
                answer = client.send("POST", path, data)
                assert answer.status == 400, (name, raw, answer)
                answer.json()


def test_hostile_texts_in_forms_queries_and_paths(target: Target) -> None:
    spelled = (
        "%00",
        "%ff",
        "%ed%a0%80",
        "%F0%9F%98%80",
        "%3C/s%3E",
        "%u1234",
        "%",
        "%zz",
        "+",
        "%0d%0aX:1",
        "a" * 3000,
    )
    with Client(target) as client:
        for text in spelled:
            fields = f"source=de&target=en&q={text}"
            form = [("Content-Type", FORM)]
            for answer in (
                client.send("POST", "/translate", fields.encode(), form),
                client.send("POST", f"/translate?{fields}"),
                client.send("GET", f"/v2/translate?source_lang=DE&target_lang=EN&text={text}"),
                client.send("POST", f"/detect?q={text}"),
                client.send("GET", f"/v1/models/{text}"),
                client.send("GET", f"/{text}"),
            ):
                assert answer.status == 200 or 400 <= answer.status < 500, (text, answer)
                answer.json()
                assert answer.header("x") == "", "a header was injected"
