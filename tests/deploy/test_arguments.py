"""The command takes the arguments that the files of `deploy/` give it."""

from __future__ import annotations

import re

from tests.deploy.files import ROOT, serve_arguments
from tests.documents.markdown import links, prose
from transduce.cli.main import transduce as program


def test_every_argument_is_one_of_the_command() -> None:
    context = program.make_context("transduce", [], resilient_parsing=True)
    command = program.get_command(context, "serve")
    assert command is not None
    for arguments in serve_arguments().values():
        command.make_context("serve", arguments)  # raises when an option is unknown


def test_what_listens_to_others_needs_a_key_or_says_so() -> None:
    found = serve_arguments()
    for name in ("unit", "deployment"):
        assert any(argument.startswith("--api-key-file") for argument in found[name]), name
    assert "127.0.0.1" in found["unit"]


def test_every_file_that_the_readme_names_exists() -> None:
    readme = ROOT / "deploy/README.md"
    assert [link for link in links(readme) if not (readme.parent / link).exists()] == []
    named = re.findall(r"\bdeploy/[\w./-]*\w", readme.read_text(encoding="utf-8"))
    assert len(named) > 3
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert {path.name for path in readme.parent.iterdir() if path != readme} <= set(
        re.findall(r"[\w.]+", prose(readme))
    )
