"""A process target without a usable command.

A systemd unit needs the absolute path of the vllm executable: it has no shell and no search path of its own to
trust. Target local takes a bare name too and looks for it where the caller's shell would.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`engine.command` absent where engines are processes of the host; it or `proxy.command` a relative path there."""
    if resolved.target not in ("systemd", "local"):
        return
    local = resolved.spec.targets.local
    doubles = resolved.target == "local" and local is not None and local.engine == "sim"
    or_doubles = ", or `targets.local.engine: sim` for engine doubles" if resolved.target == "local" else ""
    for service in resolved.services:
        command = service.given.engine.command
        if command is None and not doubles:
            yield Finding(
                f"`command` is missing, target {resolved.target} starts engines with it",
                at(service, "engine"),
                help=f"write e.g. `command: /opt/vllm/bin/vllm`{or_doubles}",
                at_key=True,
            )
        for place, given in (("engine", command), ("proxy", service.given.proxy.command)):
            bare = resolved.target == "local" and given is not None and "/" not in given
            if given is not None and not given.startswith("/") and not bare:
                yield Finding(
                    f"`command` {given[:60]!r} is not an absolute path, which {resolved.target} needs",
                    at(service, place, "command"),
                    help="write e.g. `command: /opt/vllm/bin/vllm`",
                )


RULE = SpecRule(
    "DGC611",
    "command-missing",
    Severity.ERROR,
    check,
    sources=("systemd.service(5): ExecStart= takes an absolute path",),
    fails=(
        """
        services: {chat: {engine: {command: null}}}
        #                 ^ DGC611
        """,
        """
        services: {chat: {engine: {command: bin/vllm}}}
        #                                   ^ DGC611
        """,
    ),
    passes=("services: {chat: {engine: {command: /usr/local/bin/vllm}}}",),
    suppressible=False,
)
