"""A generation request until it has room in a decode replica: its body read, checked, measured, admitted.

Knows no legs; what comes after admission is the subclass's.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from disaggc.proxy.accesslog import in_ms
from disaggc.proxy.asks import APIS, Ask
from disaggc.proxy.board import Timing, Total
from disaggc.proxy.call import Call, Terms
from disaggc.proxy.exchange import Exchange
from disaggc.proxy.failures import RefusedError
from disaggc.proxy.gate import Wish
from disaggc.proxy.precheck import TOKENIZE_S, check_length, check_model, prompt_length
from disaggc.proxy.requests import Request, engine_request
from disaggc.proxy.service import Service
from disaggc.routing.prefix import BLOCK_BYTES, MAX_BLOCKS, block_keys

if TYPE_CHECKING:
    from disaggc.proxy.fleet import Replica
    from disaggc.proxy.front import Front


class Arrival(Exchange):
    """One chat, completion, response or message, on its way to admission."""

    __slots__ = (
        "_queued_since", "_wish", "api", "ask", "counting", "held", "keys", "prefix", "prompt_tokens", "remote",
        "wanted",
    )  # fmt: skip

    ask: Ask
    generates = True

    def __init__(self, service: Service, front: Front, request: Request) -> None:
        Exchange.__init__(self, service, front, request)  # super() costs 0.4 us, here and in `clean`
        self.api = APIS[request.path]
        self.counting: Call | None = None
        """An engine counting the prompt's tokens."""
        self.held: Replica | None = None
        """The decode replica in which this request has room."""
        self._wish: Wish | None = None
        """While it waits for one."""
        self._queued_since = 0.0
        self.prefix = b""
        self.keys: tuple[bytes, ...] = ()
        self.prompt_tokens = 0.0
        self.remote = False
        self.wanted = 0.0

    def set_out(self, now: float) -> None:
        """Room in a decode replica is taken."""
        raise NotImplementedError

    def begin(self) -> None:
        """Read the body, and admit it."""
        service = self.service
        ask = self.ask = Ask(self.api, self.request.body)
        self.request.body = b""
        if ask.stripped:
            service.tally.cells[Total.PARAMS_STRIPPED] += 1
        if ask.stream and self.request.old:
            raise RefusedError(505, "streaming answers need HTTP/1.1")
        check_model(service, ask)
        tokens = prompt_length(service, ask)
        if tokens is not None:
            self._admit(tokens, self.started)
        else:
            self._ask_length()

    def _ask_length(self) -> None:
        replica = self.service.fleet.any_engine(self.started)
        if replica is None:
            self._admit(self.service.lengths.tokens(self.ask.prompt_bytes), self.started)
            return
        self.service.tally.cells[Total.TOKENIZE_CALLS] += 1
        message = engine_request(
            replica.target(b"/tokenize"), self.ask.tokenize_body(), lines=self.lines, request=self.upstream_id
        )
        terms = Terms(TOKENIZE_S, self.service.bounds.connect_s)
        self.counting = Call(self, replica, terms)
        self.calls.append(self.counting)
        self.counting.start(message, self.started)

    def length_told(self, tokens: int | None) -> None:
        """An engine counted the prompt, or could not."""
        self.counting = None
        if tokens is not None:
            check_length(self.service, self.ask, tokens)
        self._admit(tokens or self.service.lengths.tokens(self.ask.prompt_bytes), monotonic())

    def _admit(self, tokens: float, now: float) -> None:
        service, ask = self.service, self.ask
        # Whole numbers, so that what was in flight adds up to nought.
        tokens = self.prompt_tokens = float(round(tokens))
        bounds = service.bounds
        self.remote = service.fleet.disaggregated and ask.single and tokens >= bounds.hand_over_from
        if bounds.affinity or bounds.cache_counts:
            self._read_prefix()
        mean = service.mean_output
        limit = ask.output_limit
        wanted = self.wanted = tokens + float(limit if limit and limit < mean else round(mean))
        replica = service.gate.admit(wanted, self.prefix, now, remote=self.remote)
        if replica is not None:
            self.held = replica
            self.set_out(now)
            return
        wish = Wish(wanted, self.prefix, self.remote, self._granted, ask.size)
        service.gate.wait(wish, service.priorities[self.position], now)
        self._wish = wish
        self._queued_since = now

    def _granted(self, replica: Replica) -> None:
        """The wait is over."""
        now = monotonic()
        self._wish = None
        self.held = replica
        waited = now - self.started
        self.entry.queue_ms = in_ms(waited)
        self.times[Timing.QUEUE].append(waited)
        try:
            self.set_out(now)
        except Exception as exc:  # noqa: BLE001 - see `fall`
            self.fall(exc)

    def _read_prefix(self) -> None:
        """Prefix keys, where a policy or a break-even asks for them; otherwise hashing would be for nothing."""
        bounds = self.service.bounds
        if bounds.affinity or (self.remote and bounds.cache_counts):
            self.keys = block_keys(self.ask.prompt_head(BLOCK_BYTES * MAX_BLOCKS))
        if bounds.affinity:
            self.prefix = self.request.headers.get(b"x-session-id") or (self.keys[0] if self.keys else b"")

    def tick(self, now: float) -> None:
        """The wait for admission has a deadline of its own."""
        if self._wish is None:
            super().tick(now)
        elif now > min(self.last, self._queued_since + self.service.bounds.queue_s):
            if not self.service.gate.open(now):
                self.fall(self.service.gate.closed())
                return
            self.service.tally.cells[Total.REFUSED_QUEUE] += 1
            self.fall(RefusedError(429, "the service stayed at its limit, try again later", retry_after=5))

    def clean(self, now: float) -> None:
        """Give back room, and the place in line."""
        Exchange.clean(self, now)
        if self._wish is not None:
            self.service.gate.give_up(self._wish)
            self._wish = None
        if self.held is not None:
            self.service.gate.release(self.held, self.wanted, now)
            self.held = None
