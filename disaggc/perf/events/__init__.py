"""Event simulator: one service's layout under a client's load, request by request, from event to event.

Above step times, memory and KV paths; below the command line. Pure: a seed in, a Run out. Knows no real clock, no HTTP
and no solver. Replicas are chosen and admitted by the proxy's own code.
"""

from disaggc.perf.events.load import Failure, Load, Offered, Ramp, Stream
from disaggc.perf.events.result import ClassRun, Run, Spread
from disaggc.perf.events.setting import Front
from disaggc.perf.events.simulate import simulate

__all__ = ["ClassRun", "Failure", "Front", "Load", "Offered", "Ramp", "Run", "Spread", "Stream", "simulate"]
