"""Run folders as a training process would leave them, written by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

HOSTILE = "</script><script>alert(1)</script> <!-- \u202e \ud800 <img src=x onerror=alert(1)> {{data}} &lt;"
SAMPLES = [["ein Hund läuft", "a dog runs", HOSTILE], ["東京", "Tokyo", "Kyoto"]]


def folder_of(place: Path, journal: list[dict[str, Any]], timing: list[dict[str, Any]] | None = None) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    for name, lines in (("journal", journal), ("timing", timing)):
        if lines is not None:
            (place / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return place


def update(number: int, **facts: Any) -> dict[str, Any]:
    return {
        "event": "update",
        "update": number,
        "epoch": number // 7,
        "loss": 11 / number,
        "learning_rate": number / 1000,
        "gradient_norm": 0.5,
        "tokens": 13 * number,
        **facts,
    }


def check(number: int, loss: float, best: bool, **facts: Any) -> dict[str, Any]:
    measures = {"loss": loss, "perplexity": math.exp(loss), "accuracy": 0.75, "word_error_rate": 0.3}
    return {"event": "validation", "update": number, **measures, "best": best, "samples": SAMPLES, **facts}


def moment(number: int, seconds: float, **facts: Any) -> dict[str, Any]:
    return {"event": "update", "seconds": seconds, "at": 1.79e9, "update": number, "tokens": 13 * number, **facts}
