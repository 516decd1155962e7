"""`transduce studio`: watch models work, in the browser."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser

import click

from transduce.cli.options import argument, device_option, make_command, option_group
from transduce.cli.terminal import note, visible

_EXAMPLES = """
transduce studio runs/pronoun
transduce studio runs/de-en runs/de-en-large
transduce studio runs/de-en --no-browser --port 8080
"""

_network = option_group("Network options")


@make_command(_EXAMPLES)
@argument("folders", "Run or model folders; NAME=FOLDER names a model.", nargs=-1, required=True, metavar="RUN...")
@_network("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Port (default: a free one).")
@_network("--no-browser", is_flag=True, help="Only print the address.")
@device_option("Engine options")
def command(folders: tuple[str, ...], port: int, no_browser: bool, device: str) -> None:
    """Show how models work: translation word by word, beam search, attention, interventions, training.

    Starts a server that only this machine can reach, and opens its page. A run that is still training shows its
    curves. `transduce serve` has the same page at /.
    """
    from transduce.serving.launch import LaunchSettings, launch

    settings = LaunchSettings(
        folders=folders,
        port=port,
        device=device,
        workers=1,
        unfinished_runs=True,
        on_ready=None if no_browser else _open_browser,
    )
    launch(settings, lambda line: note(visible(line), label=""))


def _open_browser(address: str) -> None:
    """Open the page, unless that would start a browser in this terminal."""
    has_display = not sys.platform.startswith("linux") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if has_display:
        threading.Thread(target=webbrowser.open, args=(f"{address}/",), daemon=True).start()
