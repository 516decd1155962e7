"""The Dockerfile: its instructions, and its steps as a script."""

from __future__ import annotations

import fnmatch
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.files import ROOT, Instruction, instructions
from transduce import __version__

BUILDING = {"FROM", "ARG", "ENV", "WORKDIR", "COPY", "RUN"}
RUNNING = {"USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
PREFIX = "/opt/transduce"
"""Where the image has the program."""


def copied() -> list[str]:
    """The files and folders of the repository that the image is made of."""
    return [source for one in instructions() if one.name == "COPY" and "--from" not in one.value
            for source in one.words[:-1]]  # fmt: skip


def test_every_instruction_is_known_and_the_image_has_two_stages() -> None:
    found = instructions()
    assert {one.name for one in found} == BUILDING | RUNNING
    assert [one.value.split()[0] for one in found if one.name == "FROM"] == ["python:3.11-slim"] * 2
    assert found[-1].stage == 1


def test_what_is_copied_exists_and_nothing_else_is_sent_to_docker() -> None:
    assert set(copied()) == {"constraints.txt", "pyproject.toml", "README.md", "LICENSE", "src"}
    assert all((ROOT / source).exists() for source in copied())
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    assert patterns[0] == "*"
    assert {pattern[1:] for pattern in patterns if pattern.startswith("!")} == set(copied())


def test_packages_are_pinned_and_torch_comes_first() -> None:
    installs = [one.words for one in instructions() if one.name == "RUN" and " install " in one.value]
    assert len(installs) == 2
    assert all(words[words.index("-c") + 1] == "constraints.txt" for words in installs)
    assert installs[0][-1] == "torch" and "$TORCH_OPTIONS" in installs[0]
    assert installs[1][-1] == ".[serve,fast]"


def test_the_last_stage_has_no_tools_no_root_and_a_health_check() -> None:
    last = [one for one in instructions() if one.stage == 1]
    assert not any(fnmatch.fnmatch(one.value, "*pip*") or "apt" in one.value for one in last if one.name == "RUN")
    by_name = {one.name: one for one in last}
    assert by_name["USER"].value == "10001:10001"
    assert by_name["STOPSIGNAL"].value == "SIGTERM"
    for name in ("ENTRYPOINT", "CMD"):
        assert by_name[name].value.startswith("["), "a shell would keep SIGTERM to itself"
    check = Instruction(1, "CMD", by_name["HEALTHCHECK"].value.partition("CMD ")[2])
    assert "/health" in check.words[-1]
    compile(check.words[-1], "HEALTHCHECK", "exec")
    assert by_name["EXPOSE"].value in by_name["ENTRYPOINT"].words


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="the steps are those of an image of Linux; Linux removes this skip")
def test_the_steps_make_a_program_that_runs(tmp_path: Path) -> None:
    """The build stage without docker: `make deploy-image`. TORCH_OPTIONS are pip's, as in the Dockerfile."""
    work, prefix = tmp_path / "build", tmp_path / "opt"
    work.mkdir()
    environment = dict(os.environ)
    for one in instructions():
        if one.stage != 0:
            break
        if one.name == "ARG":
            environment.setdefault(*one.value.split("=", 1))
        elif one.name == "COPY":
            for source in one.words[:-1]:
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, work / source)
        elif one.name == "RUN":
            command = one.value.replace(PREFIX, str(prefix))
            subprocess.run(["sh", "-ec", command], cwd=work, env=environment, check=True)
    program = prefix / "bin/transduce"
    shown = subprocess.run([str(program), "--version"], cwd="/", capture_output=True, text=True, check=True).stdout
    assert __version__ in shown
    check = "import ctranslate2, starlette, torch, uvicorn, transduce.serving.app; assert torch.version.cuda is None"
    subprocess.run([str(prefix / "bin/python"), "-c", check], cwd="/", check=True)
    assert not list(prefix.glob("lib/*/site-packages/pip"))
