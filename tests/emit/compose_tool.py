"""The compose binary, wherever it is: as a docker plugin, in the cache of the stages, or beside the running Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def compose_command() -> list[str] | None:
    docker = shutil.which("docker")
    if docker is not None:
        done = subprocess.run([docker, "compose", "version"], capture_output=True, check=False, timeout=60)
        if done.returncode == 0:
            return [docker, "compose"]
    cache = os.environ.get("DISAGGC_CACHE")
    places = [Path(sys.executable).parent / "docker-compose"]
    places += [Path(cache) / "compose/bin/docker-compose"] if cache else []
    found = next((str(place) for place in places if place.exists()), shutil.which("docker-compose"))
    return [found] if found else None


def config(command: list[str], file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`compose config` on one file; needs no daemon."""
    return subprocess.run(
        [*command, "-f", str(file), "config", *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
