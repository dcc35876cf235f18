"""`disaggc sim-engine`: an engine double that takes the command line of `vllm serve`."""

from __future__ import annotations

import sys

import typer

from disaggc.cli.exits import Exit


def sim_engine(context: typer.Context) -> int:
    """Stand in for `vllm serve`: `disaggc sim-engine serve MODEL <the same flags>`.

    Own options, as flags or as DISAGGC_SIM_<NAME>: --timing FILE, --time-scale X, --kv-tokens N, --admin-port PORT,
    --admin-host, --start-delay S, --engine-version V. On the admin port: GET /state, POST and DELETE /faults.
    """
    from disaggc.simengine.launch import LaunchError, launch

    try:
        launch(context.args)
    except LaunchError as problem:
        sys.stderr.write(f"error: {problem}\n")
        if problem.usage:
            sys.stderr.write("see `disaggc sim-engine --help`\n")
        return Exit.USAGE if problem.usage else Exit.ERRORS
    return Exit.DONE
