"""`transduce serve`: models over HTTP."""

from __future__ import annotations

import os
from typing import Any

import click

from transduce.cli.options import argument, device_option, make_command, option_group
from transduce.cli.terminal import note, visible
from transduce.serving.limits import Limits

_EXAMPLES = """
transduce serve runs/de-en
transduce serve runs/de-en runs/en-de runs/author --port 8080
transduce serve runs/de-en --precision int8 --api-key-file keys.txt
transduce serve runs/de-en --host 0.0.0.0 --allowed-host translate.example.org --api-key-file keys.txt
"""

KEY_VARIABLE = "TRANSDUCE_API_KEY"

_network = option_group("Network options")
_security = option_group("Security options")
_limit = option_group("Limits")
_log = option_group("Logging options")
_engine = option_group("Engine options")


@make_command(_EXAMPLES)
@argument("folders", "Run or model folders; NAME=FOLDER names a model.", nargs=-1, required=True, metavar="MODEL...")
@_network("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to bind to.")
@_network(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    metavar="N",
    help="Port; 0 takes a free one.",
)
@_network(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Name under which clients call the server, besides localhost (repeatable).",
)
@_network(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Reverse proxy whose X-Forwarded-For header is trusted (repeatable).",
)
@_security(
    "--api-key",
    "api_keys",
    multiple=True,
    metavar="KEY",
    help=f"Key that clients must send (repeatable; also the environment variable {KEY_VARIABLE}).",
)
@_security("--api-key-file", metavar="FILE", help="File with one key per line; does not appear in process lists.")
@_security("--no-studio", is_flag=True, help="Do not serve the studio, the page at / that shows how models work.")
@_engine(
    "--engine",
    type=click.Choice(["auto", "torch", "ctranslate2"]),
    default="torch",
    show_default=True,
    help="Engine of translation models; auto takes CTranslate2 if it supports the model.",
)
@_engine(
    "--precision",
    type=click.Choice(["float32", "int8"]),
    default="float32",
    show_default=True,
    help="Precision of matrix products on a CPU.",
)
@_engine(
    "--workers",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Processes of each model, each with a copy of it (default: one per core, at most 4; one for CTranslate2).",
)
@_engine(
    "--threads",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Threads of each process: of PyTorch's operations, or CTranslate2's workers (default: cores / processes).",
)
@device_option("Engine options")
@_limit(
    "--max-queue-tokens",
    type=click.IntRange(1),
    metavar="N",
    help="Queue limit of a process in tokens; a request counts beam size × maximum length + source length "
    f"(default: {Limits.max_queue_tokens}).",
)
@_limit(
    "--timeout",
    type=click.FloatRange(0.1, 3600),
    metavar="SECONDS",
    help=f"Time limit of a request (default: {Limits.timeout:.0f}).",
)
@_log(
    "--access-log",
    metavar="FILE",
    help="Append one JSON line per request, without its text; - is standard error (default: none).",
)
def command(folders: tuple[str, ...], **options: Any) -> None:
    """Serve models over HTTP until Ctrl-C or SIGTERM; running requests are finished first.

    Requests of all clients share the steps of a model (continuous batching); a result does not depend on the other
    requests. The server has its own API and, as far as a model supports them, those of LibreTranslate, DeepL and
    OpenAI; /docs lists them. At / is the studio, which shows how a model works (see `transduce studio`). Only this
    machine can reach the server unless --host is given; then a key is required.
    """
    from transduce.serving.launch import LaunchSettings, launch, load_keys

    settings = LaunchSettings(
        folders=folders,
        host=options["host"],
        port=options["port"],
        allowed_hosts=options["allowed_hosts"],
        trusted_proxies=options["trusted_proxies"],
        api_keys=load_keys(options["api_keys"], os.environ.get(KEY_VARIABLE), options["api_key_file"]),
        engine=options["engine"],
        precision=options["precision"],
        workers=options["workers"],
        threads=options["threads"],
        device=options["device"],
        max_queue_tokens=options["max_queue_tokens"],
        timeout=options["timeout"],
        access_log=options["access_log"],
        studio=not options["no_studio"],
    )
    launch(settings, lambda line: note(visible(line), label=""))
