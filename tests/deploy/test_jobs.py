"""Jobs that train and translate on several hosts agree with themselves and with the program."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.run import get_args_parser

from tests.deploy.files import ROOT
from tests.deploy.kubernetes_schema import jobs
from transduce.cli.main import run
from transduce.cli.train import command as train
from transduce.cli.translate import command as translate
from transduce.inference.jobs.merge import merge
from transduce.inference.jobs.shards import Shard, read_shard

FOUND = jobs()
SLURM = ROOT / "deploy/slurm"


def container(name: str) -> dict[str, Any]:
    (one,) = job(name)["spec"]["template"]["spec"]["containers"]
    return dict(one)


def job(name: str) -> dict[str, Any]:
    return next(one for one in FOUND[name] if one["kind"] == "Job")


def test_the_pods_of_a_job_are_as_many_as_its_arguments_say() -> None:
    for name in FOUND:
        spec = job(name)["spec"]
        assert spec["completionMode"] == "Indexed" and spec["parallelism"] == spec["completions"]
    args = container("translate")["args"]
    (given,) = [one.removeprefix("--shard=") for one in args if one.startswith("--shard=")]
    count = job("translate")["spec"]["completions"]
    found = [read_shard(given, {"JOB_COMPLETION_INDEX": str(index)}) for index in range(count)]
    assert found == [Shard(index + 1, count) for index in range(count)]
    (script,) = container("train")["args"]
    assert f"--nnodes={job('train')['spec']['completions']} " in script


def test_translate_accepts_the_arguments_of_a_shard() -> None:
    program, verb = container("translate")["command"]
    assert (program, verb) == ("transduce", "translate")
    context = translate.make_context("translate", [*container("translate")["args"]])
    assert context.params["shard"] == "auto/20"
    limit = int(container("translate")["resources"]["limits"]["cpu"])
    assert context.params["workers"] * context.params["threads"] == limit


def test_the_first_pod_is_the_rendezvous_by_the_name_that_the_service_gives_it() -> None:
    service = next(one for one in FOUND["train"] if one["kind"] == "Service")
    spec = job("train")["spec"]["template"]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == spec["metadata"]["labels"]
    assert spec["spec"]["subdomain"] == service["metadata"]["name"]
    (port,) = service["spec"]["ports"]
    (script,) = container("train")["args"]
    first = f"{job('train')['metadata']['name']}-0.{service['metadata']['name']}:{port['port']}"
    assert f"--rdzv-endpoint={first} " in script


def script_of_train() -> dict[str, str]:
    """The script of each scheduler that starts torchrun."""
    (pod,) = container("train")["args"]
    return {"pod": pod, "slurm": (SLURM / "train.sbatch").read_text(encoding="utf-8")}


def test_torchrun_accepts_its_options_in_the_scripts() -> None:
    for name, script in script_of_train().items():
        (call,) = re.findall(r"exec torchrun (.*?) -m transduce train", script, re.DOTALL)
        options = re.sub(r'\\\n|"', "", re.sub(r'\$\{?[^\s:"]+', "1", call)).split()
        parsed = get_args_parser().parse_args([*options, "script.py"])
        assert parsed.rdzv_backend == "c10d" and parsed.max_restarts > 0 and parsed.shutdown_timeout == 120, name
        assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" in script or any(
            one["name"] == "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" and one["value"] == "1"
            for one in container("train")["env"]
        )


def test_training_resumes_if_there_is_a_run() -> None:
    for script in script_of_train().values():
        assert re.search(r'if \[ -f "\$RUN/recipe.toml" \]; then\s+set -- --resume "\$RUN"', script)
        assert '--recipe "$RECIPE" --output "$RUN"' in script
    for arguments in (["--resume", "x"], ["--recipe", "x", "--output", "y"]):
        train.make_context("train", arguments)


@pytest.mark.skipif(shutil.which("bash") is None, reason="runs scripts of bash; installing bash removes this skip")
def test_an_array_translates_and_merges(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script with a stand-in for `srun` that notes the command, which is then run."""
    (place / "big.txt").write_text("a b c\n" * 700)
    (place / "bin").mkdir()
    (place / "bin/srun").write_text("#!/bin/bash\nprintf '%s\\n' \"$@\"\n")
    (place / "bin/srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}")
    job = {"MODEL": "run", "INPUT": "big.txt", "OUTPUT": "out.txt", "OPTIONS": "--engine torch --block-lines 512"}
    for name, value in {**job, "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_COUNT": "2"}.items():
        monkeypatch.setenv(name, value)
    script = ["bash", str(SLURM / "translate.sbatch")]
    for task in ("0", "1"):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", task)
        printed = subprocess.run(script, check=True, capture_output=True, text=True).stdout.splitlines()
        assert printed[0] == "transduce" and run(printed[1:]) == 0
    assert merge("out.txt").lines == 700
    monkeypatch.delenv("MODEL")
    refused = subprocess.run(script, capture_output=True, text=True, check=False)
    assert refused.returncode != 0 and "MODEL: set it to the run or model folder" in refused.stderr
