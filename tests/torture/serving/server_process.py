"""A server over fake models in a process of its own: `python -m tests.torture.serving.server_process '{"keys": […]}'`.

Prints its port, and at the end how many jobs are still running. What it logs goes to standard error.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import sys
import threading
from typing import Any

from tests.unit.serving.fake_backend import ENCODER, GENERATOR, TRANSLATOR, FakeBackend
from tests.unit.serving.front import wait_until
from transduce.serving.app import create_app
from transduce.serving.connection import Timeouts
from transduce.serving.limits import Limits
from transduce.serving.security import ServerSettings
from transduce.serving.server import Server
from transduce.serving.service import Service

LANGUAGES = ("de", "fr", "en", "zho_Hans", "zho_Hant")
MULTILINGUAL = dataclasses.replace(
    TRANSLATOR, name="multilingual", source_languages=LANGUAGES, target_languages=LANGUAGES, default_source="fr"
)


def run(options: dict[str, Any]) -> None:
    """Serve until a signal. Options: keys, hosts, delay (seconds of each job), timeouts and limits, all by name."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    logging.captureWarnings(True)
    backends = [FakeBackend(info) for info in (TRANSLATOR, MULTILINGUAL, GENERATOR, ENCODER)]
    for backend in backends:
        backend.delay = options.get("delay", 0.0)
        backend.keeps_jobs = False
    limits = Limits(**options.get("limits", {}))
    keys, hosts = tuple(options.get("keys", ())), tuple(options.get("hosts", ()))
    app = create_app(Service(backends, limits), ServerSettings(api_keys=keys, allowed_hosts=hosts, limits=limits))
    server = Server(app, port=0, limits=limits, timeouts=Timeouts(**options.get("timeouts", {})))

    def announce() -> None:
        wait_until(lambda: server.started, 30)
        print(server.port, flush=True)

    threading.Thread(target=announce).start()
    asyncio.run(server.serve())
    print(sum(backend.running for backend in backends), flush=True)


if __name__ == "__main__":
    run(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})
