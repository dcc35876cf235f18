"""A generation request: admission, the choice of replicas, retries until the first byte, delivery.

KV parameters are single use: whatever happens to the decode leg, the next try starts with a new prefill, and what an
earlier one left pinned is released.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from disaggc.proxy.answers import Answer
from disaggc.proxy.asks import Api, Ask, parse_ask
from disaggc.proxy.board import PerClass, Timing, Total
from disaggc.proxy.delivery import deliver
from disaggc.proxy.exchange import Exchange
from disaggc.proxy.failures import LegError, RefusedError, Stage
from disaggc.proxy.fleet import Replica
from disaggc.proxy.front import Front
from disaggc.proxy.gate import Wish
from disaggc.proxy.legs import handed_over
from disaggc.proxy.pair_choice import choose_pair
from disaggc.proxy.pairing import Legs
from disaggc.proxy.precheck import check_length, check_model
from disaggc.proxy.requests import Request
from disaggc.proxy.service import Service
from disaggc.routing.prefix import BLOCK_BYTES, MAX_BLOCKS, block_keys
from disaggc.routing.roles import Path, path_for
from disaggc.routing.table import Policy

_APIS = {api.value.encode(): api for api in Api}


class Generation(Exchange):
    """One chat, completion, response or message."""

    __slots__ = (
        "api",
        "ask",
        "finished_prefill",
        "held",
        "keys",
        "params",
        "prefix",
        "prompt_tokens",
        "remote",
        "tasks",
        "tried",
        "tries",
        "wanted",
    )

    ask: Ask

    def __init__(self, service: Service, front: Front, request: Request) -> None:
        super().__init__(service, front, request)
        self.api = _APIS[request.path]
        self.finished_prefill: Answer | None = None
        """A prefill answer whose parameters are not taken out yet."""
        self.held: Replica | None = None
        self.params = b""
        self.prefix = b""
        self.keys: tuple[bytes, ...] = ()
        self.prompt_tokens = 0.0
        self.remote = False
        self.tasks: tuple[asyncio.Task[Answer], ...] = ()
        self.tried: set[str] = set()
        self.tries = 0
        self.wanted = 0.0

    async def work(self) -> None:
        """From the body to the last byte."""
        service = self.service
        ask = self.ask = parse_ask(self.api, self.request.body)
        if ask.stripped:
            service.tally.cells[Total.PARAMS_STRIPPED] += 1
        if ask.stream and self.request.old:
            raise RefusedError(505, "streaming answers need HTTP/1.1")
        check_model(service, ask)
        self.prompt_tokens = await check_length(self, ask)
        self.remote = service.fleet.disaggregated and ask.single and self._worth_handing_over(0.0)
        self._read_prefix()
        try:
            await self._admit()
            if self.remote and self.keys:
                cached = service.prefixes.cached_bytes(self.holding.address, self.keys)
                self.remote = self._worth_handing_over(cached / max(1, ask.prompt_bytes))
            answer = await self._answer()
            service.prefixes.note(self.holding.address, self.keys)
            await deliver(self, answer)
        finally:
            if self.held is not None:
                service.gate.release(self.held, self.wanted)
                self.held = None
            for task in self.tasks:
                task.cancel()
            self._release_params()

    def _worth_handing_over(self, cached_share: float) -> bool:
        """Whether what decode has not cached is above the break-even."""
        table = self.service.table
        uncached = self.prompt_tokens * (1 - min(1.0, cached_share))
        path = path_for(
            uncached_tokens=uncached, skip_below=table.skip_prefill_below, block_size=table.block_size
        )
        return path is Path.REMOTE

    def _read_prefix(self) -> None:
        """Prefix keys, where a policy or a break-even asks for them; otherwise hashing would be for nothing."""
        table = self.service.table
        affinity = table.policy is Policy.PREFIX_AFFINITY
        if affinity or (self.remote and table.skip_prefill_below > table.block_size):
            self.keys = block_keys(self.ask.prompt_head(BLOCK_BYTES * MAX_BLOCKS))
        if affinity:
            self.prefix = self.request.headers.get(b"x-session-id") or (self.keys[0] if self.keys else b"")

    async def _admit(self) -> None:
        service = self.service
        self.wanted = self.prompt_tokens + min(
            self.ask.output_limit or service.mean_output, service.mean_output
        )
        wish = Wish(self.wanted, service.priorities[self.position], self.prefix, remote=self.remote)
        granted = service.gate.admit(wish)
        if not isinstance(granted, asyncio.Future):
            self.held = granted
            return
        try:
            self.held = await self.within(Stage.QUEUE, service.table.timeouts.queue_s, granted)
        except LegError:
            service.gate.give_up(wish)
            service.tally.cells[Total.REFUSED_QUEUE] += 1
            raise RefusedError(
                429, "the service stayed at its limit, try again later", retry_after=5
            ) from None
        except asyncio.CancelledError:
            service.gate.give_up(wish)
            raise
        waited = self.clock() - self.started
        self.entry.queue_ms = waited * 1e3
        service.tally.timing(self.position, Timing.QUEUE, waited)

    async def _answer(self) -> Answer:
        """An answer that is good, or the client's own fault; tries again while that is allowed."""
        while True:
            decode = self.holding
            # A table that came meanwhile may have no prefill side any more.
            self.remote = self.remote and self.service.fleet.disaggregated
            try:
                if not self.remote:
                    return await Legs(self).alone(decode)
                pair = choose_pair(self.service.fleet, decode, tried=self.tried, prefix=self.prefix)
                if pair is not None:
                    self._move_to(pair.decode)
                    return await Legs(self).pair(pair.prefill, pair.decode)
                self._without_prefill()
            except LegError as error:
                for task in self.tasks:
                    task.cancel()
                self._release_params()
                self._next_try(error)

    @property
    def holding(self) -> Replica:
        """The decode replica in which this request has room."""
        if self.held is None:
            raise RuntimeError("a request without a replica is being served")
        return self.held

    def _without_prefill(self) -> None:
        """No prefill replica can be used: decode alone where the policy says so, else say it."""
        if self.service.table.on_prefill_failure != "decode-locally":
            self.service.tally.cells[Total.REFUSED_NO_REPLICA] += 1
            raise RefusedError(503, "no prefill engine is available", retry_after=2)
        self._fall_back()

    def _fall_back(self) -> None:
        self.remote = False
        self.service.tally.by_class(self.position, PerClass.FALLBACK)

    def _next_try(self, error: LegError) -> None:
        """Prepare another try, or end with the status of the last failure."""
        table = self.service.table
        over = self.clock() >= self.started + table.timeouts.total_s
        if error.prefill:
            self.tried.add(self.entry.prefill)
            if table.on_prefill_failure == "error" or over:
                raise RefusedError(error.status, f"prefill failed: {error.reason}")
            if table.on_prefill_failure == "decode-locally":
                self._fall_back()
                return
        if self.tries >= table.retries or over:
            raise RefusedError(
                error.status, f"{'prefill' if error.prefill else 'decode'} failed: {error.reason}"
            )
        self.tries += 1
        self.entry.retries = self.tries
        if not error.prefill:
            self.tried.add(self.entry.decode)
            self._move_elsewhere()

    def _move_elsewhere(self) -> None:
        """Another decode replica, an untried one if there is any."""
        fleet, now = self.service.fleet, self.clock()
        untried = [r for r in fleet.servers if r.address not in self.tried]
        other = fleet.choose(untried, fleet.for_decode, now=now) or fleet.choose(
            fleet.servers, fleet.for_decode, now=now
        )
        if other is None:
            raise RefusedError(503, "no decode engine is available", retry_after=2)
        self._move_to(other)

    def _move_to(self, other: Replica) -> None:
        held = self.holding
        if other is not held:
            held.release(self.wanted)
            other.take(self.wanted)
            self.held = other

    def _release_params(self) -> None:
        """KV that nobody will fetch any more is released at its prefill."""
        finished, self.finished_prefill = self.finished_prefill, None
        if finished is not None:
            with suppress(LegError):
                self.params, _ = handed_over(finished, self.service.table.dialect)
        if self.params:
            params, self.params = self.params, b""
            self.service.releases.start(self.service, params, self.cohort, headers=self.request.headers)

    @property
    def cohort(self) -> str:
        """Cohort whose decode engines can release this request's KV."""
        entry = self.service.fleet.replicas.get(self.entry.decode) or self.service.fleet.replicas.get(
            self.entry.prefill
        )
        return entry.entry.cohort if entry else ""

    def note_prompt_tokens(self, exact: int) -> None:
        """An engine said how many tokens the prompt has."""
        if self.ask.countable and self.ask.prompt_tokens is None and not self.entry.input_tokens:
            self.service.lengths.learn(self.ask.prompt_bytes, exact)
        self.entry.input_tokens = exact
