"""`disaggc proxy`: run the bundled data plane of one service from its routing file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from disaggc.cli.exits import Exit


def proxy(
    *,
    config: Annotated[Path, typer.Option("--config", help="Routing file, as `disaggc build` writes it.")],
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=64, help="Processes that share the port.")
    ] = 1,
    host: Annotated[
        str | None, typer.Option("--host", help="Address for clients instead of the file's.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65535, help="Port instead of the file's.")
    ] = None,
) -> int:
    """Serve until SIGTERM, then finish what runs. `disaggc schema routing` describes the file.

    On the administration port of the file: /metrics, /admin/pools, /admin/routing, /admin/drain?replica=ADDRESS.
    """
    from disaggc.proxy.launch import LaunchError, launch

    try:
        launch(config, workers=workers, host=host, port=port)
    except LaunchError as problem:
        sys.stderr.write(f"error: {problem}\n")
        return Exit.ERRORS
    return Exit.DONE
