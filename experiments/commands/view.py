"""``ssp view``: serves the page of some runs, live."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence

from experiments.report.server import Viewer, open_server


def run(paths: Sequence[str], *, host: str, port: int, open: bool) -> int:
    """Serves until Ctrl-C; see :func:`experiments.cli.view`."""
    viewer = Viewer(paths)
    with open_server(viewer, host, port) as server:
        server.daemon_threads = True
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{server.server_port}/"
        print(f"ssp view: {', '.join(viewer.keys)} at {address} (Ctrl-C ends it)", flush=True)
        if open:
            webbrowser.open(address)
        server.serve_forever()
    return 0
