"""The studio's jobs for a text encoder: attention, and what the head predicts."""

from __future__ import annotations

import json
from collections.abc import Generator

from transduce.config import Table
from transduce.errors import SettingsError
from transduce.inference.text_encoder import TextEncoder, as_json
from transduce.inspection.arrays import share_array
from transduce.inspection.maps import AttentionMaps, zero_based
from transduce.serving.job import InspectJob, RecordJob, Result
from transduce.serving.studio.inspector import (
    TOP,
    Inspector,
    check_array,
    check_length,
    kinds_of,
    settings_of,
    steps_json,
)
from transduce.serving.studio.requests import AttentionRequest


class TextInspector(Inspector[TextEncoder]):
    """Records the encoding of a text or a pair."""

    def describe(self) -> Table:
        kinds = kinds_of(self._loaded.model)
        masked = ["The capital of France is <mask>."] if self._loaded.head == "language" else []
        return {
            "kinds": kinds,
            "feed_forward": {},
            "views": ["attention"] if kinds else [],
            "search": {},
            "settings": settings_of(self._loaded.model),
            "examples": masked,
        }

    def record(self, job: RecordJob) -> Result:
        tokens = self._tokens(job)
        check_length(tokens)
        recorded = self._admitted(tokens, lambda: self._pass(self._model(job), job))
        return {"pass": recorded, "tokens": tokens}

    def stream(self, job: RecordJob) -> Generator[str, None, Result]:
        yield json.dumps({"event": "segments", "before": "", "segments": [{"text": job.text, "after": ""}]})
        result = self.record(job)
        yield json.dumps({"event": "pass", "segment": 0, "pass": result["pass"]})
        return {"text": result["pass"]["output"], "tokens": result["tokens"]}

    def inspect(self, job: InspectJob) -> Result:
        if job.view != "attention":
            raise SettingsError(f"a text encoder has no view '{job.view}'; it has attention and its prediction")
        tokens = self._tokens(job.recorded)
        check_length(tokens)
        return {"value": self._admitted(tokens, lambda: self._attention(job)), "tokens": tokens}

    def _attention(self, job: InspectJob) -> Table:
        asked = AttentionRequest.model_validate(job.parameters)
        maps = self._maps(self._model(job.recorded), job.recorded)
        layers = maps.maps.get(asked.kind)
        if layers is None:
            raise SettingsError(f"the model has no attention maps of the kind '{asked.kind}'")
        weights_HQM = layers[zero_based("layer", asked.layer, len(layers))]
        check_array(*weights_HQM.shape)
        return share_array(weights_HQM)

    def _maps(self, encoder: TextEncoder, job: RecordJob) -> AttentionMaps:
        return encoder.attention(job.text if job.second is None else [job.text, job.second], TOP)

    def _pass(self, encoder: TextEncoder, job: RecordJob) -> Table:
        maps = self._maps(encoder, job)
        prediction = None
        if encoder.head in ("labels", "tags", "span") or (encoder.head == "language" and maps.steps):
            prediction = as_json(encoder.predict([job.text if job.second is None else [job.text, job.second]])[0])
        output = maps.translation or " ".join(step.top[0].piece for step in maps.steps)
        return {
            "subject": maps.subject,
            "source": maps.source,
            "output": output,
            "source_tokens": _tokens_of(encoder, job, len(maps.source_pieces)),
            "source_pieces": list(maps.source_pieces),
            "source_words": [None] * len(maps.source_pieces),
            "read_tokens": [],
            "read_pieces": [],
            "produced_tokens": [],
            "produced_pieces": [],
            "produced_words": [],
            "steps": steps_json(maps.steps),
            "links": [],
            "score": None,
            "log_probability": None,
            "ended": True,
            "forced": 0,
            "language_tokens": 0,
            "missing": [],
            "truncated": False,
            "generated": 0,
            "search": {},
            "head": encoder.head,
            "prediction": prediction,
            "attention": {
                kind: {
                    "layers": weights.shape[0],
                    "heads": weights.shape[1],
                    "rows": list(maps.rows(kind)),
                    "columns": list(maps.columns(kind)),
                }
                for kind, weights in maps.maps.items()
            },
        }

    def _tokens(self, job: RecordJob) -> int:
        encode = self._loaded.tokenizer.encode
        return 2 + len(encode(job.text)) + len(encode(job.second or ""))


def _tokens_of(encoder: TextEncoder, job: RecordJob, count: int) -> list[int]:
    """Return the tokens that a text encoder reads; none where it reads facts one by one."""
    engine, texts = encoder.engine, [job.text] if job.second is None else [job.text, job.second]
    row = engine.masked_row(texts[0]) if len(texts) == 1 and engine.has_mask(texts[0]) else engine.row(texts)
    tokens: list[int] = engine.tensors([row])[0][0].tolist()
    return tokens if len(tokens) == count else []
