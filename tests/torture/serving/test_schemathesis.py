"""R17 with schemathesis: all its phases without state, valid and invalid parameters, NUL bytes allowed.

`make fuzz` installs it and runs this; with `make torture` alone it is skipped, and hypothesis does a part of it.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.torture.example import Tally
from tests.torture.serving.target import Target, percentile

CASES = 10_000
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.mark.torture
def test_schemathesis_finds_nothing(target: Target, tmp_path: Path, tally: Tally) -> None:
    if importlib.util.find_spec("schemathesis") is None:
        pytest.skip("schemathesis is not installed; `make fuzz` installs it")
    report = tmp_path / "report.ndjson"
    url = f"http://{target.host}:{target.port}/openapi.json"
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", url, "--seed", "17", "--phases", "examples,coverage,fuzzing",
        "--mode", "all", "--max-examples", "400", "--checks", CHECKS, "--generation-allow-x00", "true", "--no-color",
        "--generation-database", "none", "--continue-on-failure", "--report-ndjson-path", str(report),
        "--suppress-health-check", "all",
    ]  # fmt: skip
    if target.key is not None:
        command += ["-H", f"Authorization: Bearer {target.key}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    statuses: Counter[int] = Counter()
    rejected: list[float] = []
    for line in report.read_text().splitlines():
        for interaction in (
            json.loads(line).get("ScenarioFinished", {}).get("recorder", {}).get("interactions", {}).values()
        ):
            answer = interaction["response"]
            assert answer is not None, interaction["request"]
            statuses[answer["status_code"]] += 1
            if answer["status_code"] >= 400:
                rejected.append(answer["elapsed"])
    assert not any(status >= 500 for status in statuses), statuses
    assert sum(statuses.values()) >= CASES
    note = f", statuses {dict(sorted(statuses.items()))}, rejected p99 {percentile(rejected, 0.99):.1f} ms"
    tally("requests by schemathesis with an answer that is documented", sum(statuses.values()), note)
