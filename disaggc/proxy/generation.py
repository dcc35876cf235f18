"""A generation request: admission, the choice of replicas, retries until the first byte, delivery.

KV parameters are single use: whatever happens to the decode leg, the next try starts with a new prefill, and what an
earlier one left pinned is released.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from disaggc.proxy.answers import Answer
from disaggc.proxy.arrival import exact_length, read_prefix, read_request, worth_handing_over
from disaggc.proxy.asks import Api, Ask
from disaggc.proxy.board import Timing, Total
from disaggc.proxy.course import Course
from disaggc.proxy.delivery import deliver
from disaggc.proxy.exchange import Exchange
from disaggc.proxy.failures import LegError, RefusedError, Stage
from disaggc.proxy.fleet import Replica
from disaggc.proxy.front import Front
from disaggc.proxy.gate import Wish
from disaggc.proxy.legs import handed_over
from disaggc.proxy.pair_choice import Pair, choose_pair
from disaggc.proxy.pairing import Legs
from disaggc.proxy.requests import Request
from disaggc.proxy.retrying import next_try, without_prefill
from disaggc.proxy.service import Service

_APIS = {api.value.encode(): api for api in Api}


class Generation(Exchange):
    """One chat, completion, response or message."""

    __slots__ = (
        "_queued", "api", "ask", "broke", "course", "finished_prefill", "handed", "held", "keys",
        "paired", "params", "prefix", "prompt_tokens", "remote", "tasks", "tried", "tries", "wanted",
    )  # fmt: skip

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
        self.broke: LegError | None = None
        """How the common course ended, for the task that goes on."""
        self.paired: Pair | None = None
        self.handed = 0.0
        """When prefill answered, while decode is still to be asked with `params`."""
        self.course: Course | None = None
        self._queued: Wish | None = None

    # --- without a task, as long as nothing has to be waited for but engines ---

    def start(self) -> None:
        """Serve; a task comes in only where the common course ends."""
        self.service.tally.cells[Total.REQUESTS_OPEN] += 1
        self.guarded(self._begin)

    def guarded(self, step: Callable[[], None]) -> None:
        """One step outside of a task; what it raises ends the exchange as it would end a task."""
        try:
            step()
        except RefusedError as refused:
            self.conclude(keep_alive=self.answer_error(refused))
        except Exception:  # noqa: BLE001 - as in a task: counted, said, and the others go on
            self.conclude(keep_alive=self.met_bug())

    def conclude(self, *, keep_alive: bool) -> None:
        """Over, outside of a task."""
        self._clean()
        self.finish(keep_alive=keep_alive)

    def dropped(self) -> None:
        """The client left while no task serves it."""
        self.entry.outcome = "client-gone"
        if self.course is not None:
            self.course.drop()
        self.conclude(keep_alive=False)

    def _begin(self) -> None:
        tokens = read_request(self)
        if tokens is None:
            self.go_on()
            return
        self.prompt_tokens = tokens
        wish = self._wish()
        granted = self.service.gate.admit(wish)
        if isinstance(granted, asyncio.Future):
            self._queued = wish
            self.go_on()
            return
        self._enter(granted)
        self.course = Course(self)
        self.course.start()

    # --- in a task ---

    async def work(self) -> None:
        """From wherever the exchange stands to the last byte."""
        try:
            if self.held is None:
                if self._queued is None:
                    self.prompt_tokens = await exact_length(self)
                await self._admit()
            answer = await self._answer()
            self.service.prefixes.note(self.holding.address, self.keys)
            await deliver(self, answer)
        finally:
            for task in self.tasks:
                task.cancel()
            self._clean()

    def _clean(self) -> None:
        if self._queued is not None:
            self.service.gate.give_up(self._queued)
            self._queued = None
        if self.held is not None:
            self.service.gate.release(self.held, self.wanted)
            self.held = None
        self._release_params()

    def _wish(self) -> Wish:
        service = self.service
        self.remote = service.fleet.disaggregated and self.ask.single and worth_handing_over(self, 0.0)
        read_prefix(self)
        self.wanted = self.prompt_tokens + min(
            self.ask.output_limit or service.mean_output, service.mean_output
        )
        return Wish(self.wanted, service.priorities[self.position], self.prefix, remote=self.remote)

    def _enter(self, granted: Replica) -> None:
        self.held = granted
        if self.remote and self.keys:
            cached = self.service.prefixes.cached_bytes(granted.address, self.keys)
            self.remote = worth_handing_over(self, cached / max(1, self.ask.prompt_bytes))

    async def _admit(self) -> None:
        service = self.service
        wish = self._queued
        granted: Replica | asyncio.Future[Replica] | None = wish.granted if wish is not None else None
        if granted is None:
            wish = self._wish()
            granted = service.gate.admit(wish)
        if not isinstance(granted, asyncio.Future):
            self._enter(granted)
            return
        self._queued = wish
        try:
            entered = await self.within(Stage.QUEUE, service.table.timeouts.queue_s, granted)
        except LegError:
            service.tally.cells[Total.REFUSED_QUEUE] += 1
            raise RefusedError(
                429, "the service stayed at its limit, try again later", retry_after=5
            ) from None
        self._queued = None
        self._enter(entered)
        waited = self.clock() - self.started
        self.entry.queue_ms = waited * 1e3
        service.tally.timing(self.position, Timing.QUEUE, waited)

    async def _answer(self) -> Answer:
        """An answer that is good, or the client's own fault; tries again while that is allowed."""
        if self.broke is not None:
            error, self.broke = self.broke, None
            self._release_params()
            next_try(self, error)
        while True:
            decode = self.holding
            # A table that came meanwhile may have no prefill side any more.
            self.remote = self.remote and self.service.fleet.disaggregated
            try:
                if not self.remote:
                    return await Legs(self).alone(decode)
                if self.handed:
                    handed, self.handed = self.handed, 0.0
                    return await Legs(self).hand_over(decode, self.upstream_id, handed)
                pair, self.paired = self.paired, None
                pair = pair or choose_pair(self.service.fleet, decode, tried=self.tried, prefix=self.prefix)
                if pair is not None:
                    self.move_to(pair.decode)
                    return await Legs(self).pair(pair.prefill, pair.decode)
                without_prefill(self)
            except LegError as error:
                for task in self.tasks:
                    task.cancel()
                self._release_params()
                next_try(self, error)

    @property
    def holding(self) -> Replica:
        """The decode replica in which this request has room."""
        if self.held is None:
            raise RuntimeError("a request without a replica is being served")
        return self.held

    def move_to(self, other: Replica) -> None:
        """The room of this request is on another replica now."""
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
