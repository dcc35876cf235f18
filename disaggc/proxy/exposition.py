"""The proxy's metrics as Prometheus text, added up over its workers. Reads the board, writes text, knows no sockets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from disaggc import __version__
from disaggc.proxy.board import (
    TIME_BINS,
    Board,
    Length,
    PerClass,
    PerReplica,
    Shared,
    Timing,
    Total,
    class_cell,
    length_cell,
    replica_cell,
    timing_cell,
)
from disaggc.proxy.compiled import is_compiled
from disaggc.proxy.tally import time_edge
from disaggc.traffic.sketch import BINS, LengthSketch, bin_upper

PREFIX = "disaggc_proxy_"

_TOTALS: tuple[tuple[int, str, str, str], ...] = (
    (Total.CONNECTIONS, "client_connections_total", "counter", "Client connections accepted."),
    (Total.CONNECTIONS_OPEN, "client_connections_open", "gauge", "Client connections open."),
    (Total.REQUESTS_OPEN, "requests_in_flight", "gauge", "Requests being served, waiting ones included."),
    (Total.STREAMS_OPEN, "streams_open", "gauge", "Streaming answers under way."),
    (Total.QUEUE, "queue_length", "gauge", "Requests waiting for admission."),
    (
        Total.TOKENS_OPEN,
        "tokens_in_flight",
        "gauge",
        "Prompt and expected output tokens of admitted requests.",
    ),
    (Total.TOKENS_SO_FAR, "output_tokens_running", "gauge", "Tokens so far of the streams under way."),
    (Total.REFUSED_AUTH, "refused_auth_total", "counter", "Requests without the right API key."),
    (Total.REFUSED_BAD, "refused_bad_total", "counter", "Requests refused before they were complete."),
    (Total.REFUSED_LENGTH, "refused_length_total", "counter", "Requests longer than the model's context."),
    (Total.REFUSED_QUEUE, "refused_queue_total", "counter", "Requests answered 429."),
    (
        Total.REFUSED_NO_REPLICA,
        "refused_no_engine_total",
        "counter",
        "Requests answered 503 without an engine.",
    ),
    (Total.RELEASES, "kv_releases_total", "counter", "Prefill KV released because decode would not come."),
    (Total.RELEASES_FAILED, "kv_releases_failed_total", "counter", "Releases that no decode engine took."),
    (Total.LEASES_LEFT, "kv_leases_left_total", "counter", "Prefill KV left to its lease."),
    (
        Total.STALE_RETRIES,
        "stale_connection_retries_total",
        "counter",
        "Asked again on a new engine connection.",
    ),
    (
        Total.PARAMS_STRIPPED,
        "client_kv_params_stripped_total",
        "counter",
        "Requests that carried KV parameters.",
    ),
    (
        Total.PARAMS_SCRUBBED,
        "engine_kv_params_scrubbed_total",
        "counter",
        "KV parameters blanked in answers.",
    ),
    (Total.LOG_DROPPED, "access_log_dropped_total", "counter", "Access log lines that could not be written."),
    (Total.TOKENIZE_CALLS, "tokenize_calls_total", "counter", "Prompts counted by an engine's tokenizer."),
    (
        Total.ACCEPT_FULL,
        "connections_refused_total",
        "counter",
        "Clients turned away at the connection limit.",
    ),
    (
        Total.WAITED_FOR_ENGINE,
        "engine_waits_total",
        "counter",
        "Waits of requests for an engine that accepts connections.",
    ),
    (
        Total.OTHER_REQUESTS,
        "other_requests_total",
        "counter",
        "Requests that generate nothing: passed on to any engine, health, unknown paths.",
    ),
)
_CLASS: tuple[tuple[int, str, str], ...] = (
    (PerClass.REQUESTS, "requests_total", "Requests."),
    (PerClass.OK, "requests_ok_total", "Requests answered whole."),
    (PerClass.CLIENT_ERROR, "requests_client_error_total", "Requests answered 4xx."),
    (PerClass.SERVER_ERROR, "requests_server_error_total", "Requests answered 5xx."),
    (PerClass.CLIENT_GONE, "requests_client_gone_total", "Requests whose client left."),
    (PerClass.BROKEN_STREAM, "requests_broken_stream_total", "Streams that broke after their first byte."),
    (PerClass.RETRIES, "retries_total", "Further tries of requests."),
    (PerClass.REMOTE, "prefill_remote_total", "Tries with prefill on another replica."),
    (PerClass.LOCAL, "prefill_local_total", "Tries with prefill on the decode replica."),
    (PerClass.FALLBACK, "prefill_fallback_total", "Requests that decode prefilled because prefill failed."),
    (PerClass.TOKENS_IN, "prompt_tokens_total", "Prompt tokens."),
    (PerClass.TOKENS_OUT, "output_tokens_total", "Generated tokens."),
    (PerClass.TOKENS_CACHED, "cached_tokens_total", "Prompt tokens the engines say were cached."),
)
_TIMINGS: tuple[tuple[int, str, str], ...] = (
    (Timing.TTFT, "time_to_first_token_seconds", "From the request's last byte to the answer's first."),
    (Timing.ITL, "inter_token_latency_seconds", "Between two pieces of a stream."),
    (Timing.E2E, "e2e_latency_seconds", "From the request's last byte to the answer's last."),
    (Timing.QUEUE, "queue_seconds", "Waiting for admission, of those that waited."),
    (Timing.PREFILL, "prefill_seconds", "The prefill leg."),
    (Timing.HANDOFF, "handoff_seconds", "From prefill's answer to decode's first byte."),
    (Timing.DECODE_FIRST, "decode_first_byte_seconds", "From asking decode to its first byte."),
)
_LENGTHS: tuple[tuple[int, str, str], ...] = (
    (Length.INPUT, "input_tokens", "Prompt lengths."),
    (Length.OUTPUT, "output_tokens", "Output lengths."),
)
_REPLICA: tuple[tuple[int, str, str, str], ...] = (
    (PerReplica.REQUESTS, "replica_requests_total", "counter", "Legs sent."),
    (PerReplica.PREFILLS, "replica_prefills_total", "counter", "Prefill legs sent."),
    (PerReplica.DECODES, "replica_decodes_total", "counter", "Decode legs sent."),
    (PerReplica.FAILURES, "replica_failures_total", "counter", "Legs the engine failed."),
    (PerReplica.CIRCUIT_OPENED, "replica_circuit_opened_total", "counter", "Times its circuit opened."),
    (PerReplica.CONNECTS, "replica_connects_total", "counter", "Connections opened."),
    (PerReplica.REQUESTS_OPEN, "replica_requests_in_flight", "gauge", "Legs under way."),
    (PerReplica.WORK, "replica_tokens_in_flight", "gauge", "Outstanding tokens."),
)
_SHARED: tuple[tuple[int, str, str], ...] = (
    (Shared.RUNNING, "replica_engine_running", "Running requests, as the engine says."),
    (Shared.WAITING, "replica_engine_waiting", "Waiting requests, as the engine says."),
    (Shared.KV_USAGE, "replica_engine_kv_usage", "KV usage, as the engine says."),
)


def render(board: Board, classes: Sequence[str], slots: Mapping[str, int], *, generation: int) -> str:
    """All metrics as text."""
    build = f'version="{__version__}",compiled="{str(is_compiled()).lower()}"'
    lines = [*_metric("build_info", "gauge", "1, labelled by what runs.", samples=[(build, 1.0)])]
    lines += _metric(
        "routing_generation", "gauge", "Generation of the routing table.", samples=[("", generation)]
    )
    for total, name, kind, text in _TOTALS:
        lines += _metric(name, kind, text, samples=[("", board.total(total))])
    labels = [f'class="{_escape(name)}"' for name in classes]
    for cell, name, text in _CLASS:
        counts = [(label, board.total(class_cell(p, cell))) for p, label in enumerate(labels)]
        lines += _metric(name, "counter", text, samples=counts)
    for timing, name, text in _TIMINGS:
        rows = [(label, board.row(timing_cell(p, timing), TIME_BINS + 1)) for p, label in enumerate(labels)]
        lines += _histograms(name, text, rows, edges=[time_edge(i) for i in range(TIME_BINS)])
    for length, name, text in _LENGTHS:
        rows = [(label, board.row(length_cell(p, length), BINS + 1)) for p, label in enumerate(labels)]
        lines += _histograms(name, text, rows, edges=[bin_upper(i) for i in range(BINS)])
    where = [(f'replica="{_escape(address)}"', slot) for address, slot in sorted(slots.items())]
    for per, name, kind, text in _REPLICA:
        lines += _metric(
            name, kind, text, samples=[(label, board.total(replica_cell(slot, per))) for label, slot in where]
        )
    for shared, name, text in _SHARED:
        lines += _metric(
            name, "gauge", text, samples=[(label, board.shared_cell(slot, shared)) for label, slot in where]
        )
    health = [(label, float(board.shared_cell(slot, Shared.HEALTHY) >= 0)) for label, slot in where]
    lines += _metric("replica_healthy", "gauge", "1 while the health probes let it serve.", samples=health)
    return "\n".join(lines) + "\n"


def render_pairs(canaries: Mapping[str, int], apart: Iterable[tuple[str, str]]) -> str:
    """What canaries found and which pairs they keep from KV, as text. canaries: how many by verdict."""
    counts = [(f'verdict="{name}"', float(count)) for name, count in canaries.items()]
    pairs = [(f'prefill="{_escape(p)}",decode="{_escape(d)}"', 1.0) for p, d in sorted(apart)]
    lines = [
        *_metric("canaries_total", "counter", "Canaries sent over pairs.", samples=counts),
        *_metric("pair_apart", "gauge", "1 while canaries keep KV from this pair.", samples=pairs),
    ]
    return "\n".join(lines) + "\n"


def render_tables(refusals: Mapping[str, int], *, rejected: bool) -> str:
    """What became of new routing tables, as text. refusals: how many were not put in effect, by their source."""
    counts = [(f'source="{source}"', float(count)) for source, count in refusals.items()]
    lines = [
        *_metric("routing_refused_total", "counter", "Routing tables not put in effect.", samples=counts),
        *_metric(
            "routing_file_rejected", "gauge", "1 while the routing file as it is now is not in effect.",
            samples=[("", float(rejected))],
        ),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def sketches(board: Board, classes: Sequence[str]) -> dict[str, dict[str, LengthSketch]]:
    """Length sketches by class, finer than a scrape needs: what re-planning takes."""
    found: dict[str, dict[str, LengthSketch]] = {}
    for position, name in enumerate(classes):
        kinds = (("input", Length.INPUT), ("output", Length.OUTPUT))
        rows = {kind: board.row(length_cell(position, length), BINS + 1) for kind, length in kinds}
        found[name] = {kind: LengthSketch(row[:BINS], row[BINS]) for kind, row in rows.items()}
    return found


def _metric(name: str, kind: str, text: str, *, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    yield f"# HELP {PREFIX}{name} {text}"
    yield f"# TYPE {PREFIX}{name} {kind}"
    for label, value in samples:
        yield f"{PREFIX}{name}{{{label}}} {value:.17g}" if label else f"{PREFIX}{name} {value:.17g}"


def _histograms(
    name: str, text: str, rows: Iterable[tuple[str, list[float]]], *, edges: list[float]
) -> Iterator[str]:
    yield f"# HELP {PREFIX}{name} {text}"
    yield f"# TYPE {PREFIX}{name} histogram"
    for label, row in rows:
        seen = 0.0
        for edge, count in zip(edges, row[:-1], strict=True):
            seen += count
            bound = "+Inf" if math.isinf(edge) else f"{edge:.6g}"
            yield f'{PREFIX}{name}_bucket{{{label},le="{bound}"}} {seen:.17g}'
        yield f"{PREFIX}{name}_sum{{{label}}} {row[-1]:.17g}"
        yield f"{PREFIX}{name}_count{{{label}}} {seen:.17g}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
