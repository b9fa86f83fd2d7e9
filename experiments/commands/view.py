"""``ssp view``: serves the page of some runs, live."""

from __future__ import annotations

import webbrowser
from argparse import Namespace

from experiments.report.server import Viewer, open_server


def run(arguments: Namespace) -> int:
    """Serves until Ctrl-C."""
    viewer = Viewer(arguments.runs)
    with open_server(viewer, arguments.host, arguments.port) as server:
        server.daemon_threads = True
        host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
        address = f"http://{host}:{server.server_port}/"
        print(f"ssp view: {', '.join(viewer.keys)} at {address} (Ctrl-C ends it)", flush=True)
        if arguments.open:
            webbrowser.open(address)
        server.serve_forever()
    return 0
