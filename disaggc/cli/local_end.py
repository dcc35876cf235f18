"""The end of a local stack: in order, said as it goes, and with the command where the stack belongs to the command."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from disaggc.hosts.processes import alive, kill_groups
from disaggc.hosts.supervision import Supervision, SupervisionError

POLL_S = 0.25
SAID_EVERY_S = 5.0
DOWN_S = 600.0
"""Longest wait for requests that run, unless the caller says another."""


class NotDownError(Exception):
    """Something runs still; the message says what to do."""


@dataclass(slots=True)
class _Wait:
    """One wait for the end of many things."""

    timeout_s: float
    said: Callable[[str], None]
    begun: float
    told: float

    def tick(self, left: str) -> None:
        now = time.monotonic()
        if now - self.begun > self.timeout_s:
            raise NotDownError(
                f"{left}: still stopping after {self.timeout_s:.0f} s; requests may be running. "
                "End them with `local down --now`"
            )
        if now - self.told > SAID_EVERY_S:
            self.told = now
            self.said(f"stopping for {now - self.begun:.0f} s: {left}")
        time.sleep(POLL_S)


def bring_down(
    supervision: Supervision, *, at_once: bool, timeout_s: float, said: Callable[[str], None]
) -> bool:
    """Stop everything; False when nothing ran. Programs get SIGTERM and the time their plan gives them.

    Proxies stop before engines. supervisord goes last: while it shuts down it tells nobody what it waits for.
    """
    if not supervision.running():
        return False
    begun = time.monotonic()
    wait = _Wait(timeout_s, said, begun=begun, told=begun)
    pid = supervision.pid()
    # Where supervisord is shutting down already, e.g. by a signal of its own, it answers no question.
    with suppress(SupervisionError):
        _stop_programs(supervision, wait, at_once=at_once)
    supervision.shut_down()
    while supervision.running() if pid is None else alive(pid):
        wait.tick("supervisord")
    return True


def _stop_programs(supervision: Supervision, wait: _Wait, *, at_once: bool) -> None:
    stages = supervision.stages()
    if at_once:
        stages = (tuple(name for stage in stages for name in stage),)
    for stage in stages:
        for name in stage:
            supervision.stop(name)
        if at_once:
            # Only now: before, supervisord would start them again.
            kill_groups(_running(supervision, stage).values())
        while left := _running(supervision, stage):
            wait.tick(", ".join(left))


def _running(supervision: Supervision, names: tuple[str, ...]) -> Mapping[str, int]:
    return {one.name: one.pid for one in supervision.states() if one.pid and one.name in names}


@dataclass(slots=True)
class Hold:
    """Whether what is held may have requests to finish."""

    served: bool


@contextmanager
def held(supervision: Supervision, said: Callable[[str], None]) -> Iterator[Hold]:
    """What runs ends with the command: by its end, an error, Ctrl-C, SIGTERM or a closed terminal.

    A second Ctrl-C cuts running requests off. Where none can run yet all is cut off at once: supervisord loses the stop
    signal of a program that it is just starting, and would wait for it as long as for requests.
    """
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    hold = Hold(supervision.running())
    try:
        yield hold
    finally:
        try:
            if bring_down(supervision, at_once=not hold.served, timeout_s=DOWN_S, said=said):
                said("down")
        except KeyboardInterrupt:
            said("once more: what runs is cut off")
            bring_down(supervision, at_once=True, timeout_s=DOWN_S, said=said)
            said("down")
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
