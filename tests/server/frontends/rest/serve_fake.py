"""Serves the fake model over REST in a process of its own.

The argument is the largest request body in bytes. The program prints its port, and serves until its
standard input ends.
"""

import sys
from pathlib import Path

from server.admission.admission import AdmissionController
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.transport.server import RestServer
from server.metrics import Metrics
from server.models.manager import Manager
from server.process import malloc, ports
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeLoader

if __name__ == "__main__":
    malloc.configure_malloc()
    manager = Manager(FakeLoader())
    aspire(manager, "half", {3: Path("/models/half/3")})
    metrics = Metrics()
    settings = Settings(Path("/models/half"), max_request_bytes=int(sys.argv[1]))
    dataplane = DataPlane(manager, metrics=metrics)
    app = build_rest_app(dataplane, settings, metrics=metrics, admission=AdmissionController(1000))
    with ports.bind_port("127.0.0.1", 0, "--rest_api_port") as listener:
        server = RestServer(app, listener, 1, sys.exit)
        server.start()
        print(listener.getsockname()[1], flush=True)
        sys.stdin.read()
        server.stop()
        server.join()
