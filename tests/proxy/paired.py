"""Engine doubles where the proxy's harness wants engines."""

from __future__ import annotations

from disaggc.simengine.faults import Fault, Kind, When
from tests.simengine.doubles import Double


class Engines(Double):
    """A double where the proxy's harness wants an engine."""

    name = "double"

    @property
    def port(self) -> int:
        return self.engine.port

    async def stop(self) -> None:
        await self.engine.stop()

    def breaks(self, kind: Kind, when: When = When.ARRIVAL, leg: str = "any") -> None:
        self.engine.faults.switch_on(Fault(kind=kind, when=when, leg=leg, count=None))

    async def fetched(self) -> float:
        """Prompt tokens it got from elsewhere."""
        return (await self.metrics()).get("vllm:external_prefix_cache_hits_total", 0.0)
