"""What the double counts, under the names, labels and buckets of vLLM 0.33. Knows no clock and no HTTP."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import accumulate

TTFT = (
    .001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0,
    2560.0,
)  # fmt: skip
ITL = (
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)
LATENCY = (
    .3, .5, .8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0,
    7680.0,
)  # fmt: skip
ITERATION = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
TRANSFER = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 5.0)
POST = (0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 5.0)
BYTES = tuple(2.0 ** (11 + 2 * i) for i in range(12))
DESCRIPTORS = (10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10000, 20000, 50000)
PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)
CHOICES = (1, 2, 5, 10, 20)


def up_to(limit: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50 ... up to a limit."""
    steps = (mantissa * 10**power for power in range(9) for mantissa in (1, 2, 5))
    return tuple(step for step in steps if step <= limit)


class Histogram:
    """Counts per bucket."""

    __slots__ = ("buckets", "counts", "total")

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self.buckets, self.counts, self.total = buckets, [0] * (len(buckets) + 1), 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """`times` observations of one value."""
        self.counts[bisect_left(self.buckets, value)] += times
        self.total += value * times


class Counters:
    """Everything that only grows, and the histograms. Gauges are asked for when the page is written."""

    def __init__(self, max_model_len: int, *, scale: float = 1.0) -> None:
        self.scale = scale
        lengths = up_to(max_model_len)
        self.value: dict[str, float] = dict.fromkeys(_PLAIN, 0.0)
        self.by: dict[tuple[str, str, str], float] = {
            (name, label, value): 0.0 for name, label, values in _LABELLED for value in values
        }
        self.hist = {
            "request_prompt_tokens": Histogram(lengths),
            "request_generation_tokens": Histogram(lengths),
            "request_max_num_generation_tokens": Histogram(lengths),
            "request_params_max_tokens": Histogram(lengths),
            "request_prefill_kv_computed_tokens": Histogram(lengths),
            "iteration_tokens_total": Histogram(ITERATION),
            "request_params_n": Histogram(CHOICES),
            "time_to_first_token_seconds": Histogram(TTFT),
            "inter_token_latency_seconds": Histogram(ITL),
            "request_time_per_output_token_seconds": Histogram(ITL),
            "e2e_request_latency_seconds": Histogram(LATENCY),
            "request_queue_time_seconds": Histogram(LATENCY),
            "request_inference_time_seconds": Histogram(LATENCY),
            "request_prefill_time_seconds": Histogram(LATENCY),
            "request_decode_time_seconds": Histogram(LATENCY),
            "request_num_preemptions": Histogram(PREEMPTIONS),
        }
        self.kv_hist: dict[str, Histogram] = {}
        self.kv_value: dict[str, float] = {}

    def with_transfers(self, family: str) -> None:
        """Counters of the KV connector; family: nixl or mooncake (others have none)."""
        if family == "nixl":
            self.kv_hist = {
                "nixl_xfer_time_seconds": Histogram(TRANSFER),
                "nixl_post_time_seconds": Histogram(POST),
                "nixl_bytes_transferred": Histogram(BYTES),
                "nixl_num_descriptors": Histogram(DESCRIPTORS),
            }
            names = (
                "failed_transfers",
                "failed_notifications",
                "kv_expired_reqs",
                "notifications_after_expiry",
            )
            self.kv_value = {f"nixl_num_{name}": 0.0 for name in names}
        elif family == "mooncake":
            self.kv_hist = {
                "mooncake_xfer_time_seconds": Histogram(TRANSFER),
                "mooncake_bytes_transferred": Histogram(BYTES),
                "mooncake_num_descriptors": Histogram(DESCRIPTORS),
            }
            self.kv_value = {
                f"mooncake_num_{name}": 0.0
                for name in ("failed_transfers", "failed_recvs", "kv_expired_reqs")
            }

    def add(self, name: str, label: str, value: str, *, amount: float = 1.0) -> None:
        """Grow a counter with a label."""
        self.by[name, label, value] += amount

    def transfer(self, event: str, amount: float = 1.0) -> None:
        """Grow a connector's counter by the end of its name, where the connector has it."""
        for name in self.kv_value:
            if name.endswith(event):
                self.kv_value[name] += amount

    def moved(self, seconds: float, size: float, descriptors: int) -> None:
        """One transfer that came through."""
        for name, histogram in self.kv_hist.items():
            if name.endswith("xfer_time_seconds"):
                histogram.observe(seconds)
            elif name.endswith("post_time_seconds"):
                histogram.observe(0.001)
            elif name.endswith("bytes_transferred"):
                histogram.observe(size)
            else:
                histogram.observe(descriptors)


_PLAIN = (
    "prefix_cache_queries", "prefix_cache_hits", "external_prefix_cache_queries", "external_prefix_cache_hits",
    "mm_cache_queries", "mm_cache_hits", "num_preemptions", "prompt_tokens", "prompt_tokens_cached",
    "generation_tokens",
)  # fmt: skip
_LABELLED = (
    ("prompt_tokens_by_source", "source", ("local_compute", "local_cache_hit", "external_kv_transfer")),
    ("prompt_tokens_cached_by_source", "source", ("device", "host", "p2p", "disk", "external_unspecified")),
    ("request_success", "finished_reason", ("stop", "length", "abort", "error", "repetition")),
)
_REJECTIONS = ("max_num_queued_reqs", "max_num_queued_tokens")


def _labels(pairs: Mapping[str, str]) -> str:
    return (
        "{"
        + ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in sorted(pairs.items()))
        + "}"
    )


def exposition(
    counters: Counters, model: str, gauges: Mapping[tuple[str, str, str], float], *, cache: Mapping[str, str]
) -> str:
    """The text of /metrics. gauges: (name, label, value of the label) -> number, without a label both empty."""
    return "\n".join(_lines(counters, model, gauges, cache=cache)) + "\n"


def _lines(
    counters: Counters, model: str, gauges: Mapping[tuple[str, str, str], float], *, cache: Mapping[str, str]
) -> Iterator[str]:
    own = {"engine": "0", "model_name": model}
    for name, histogram in (*counters.kv_hist.items(), *counters.hist.items()):
        yield from _histogram(f"vllm:{name}", own, histogram)
    for name, value in (*counters.value.items(), *counters.kv_value.items()):
        yield f"# HELP vllm:{name}_total {name.replace('_', ' ')}\n# TYPE vllm:{name}_total counter"
        yield f"vllm:{name}_total{_labels(own)} {value:.17g}"
    seen = ""
    for (name, label, kind), amount in counters.by.items():
        if name != seen:
            yield f"# HELP vllm:{name}_total {name.replace('_', ' ')}\n# TYPE vllm:{name}_total counter"
        seen = name
        yield f"vllm:{name}_total{_labels({**own, label: kind})} {amount:.17g}"
    yield "# HELP vllm:admission_rejections_total admission rejections\n# TYPE vllm:admission_rejections_total counter"
    for reason in _REJECTIONS:
        yield f"vllm:admission_rejections_total{_labels({'model_name': model, 'reason': reason})} 0"
    seen = ""
    for (name, label, kind), amount in gauges.items():
        if name != seen:
            yield f"# HELP vllm:{name} {name.replace('_', ' ')}\n# TYPE vllm:{name} gauge"
        seen = name
        yield f"vllm:{name}{_labels({**own, label: kind} if label else own)} {amount:.17g}"
    yield "# HELP vllm:cache_config_info Information of the cache config\n# TYPE vllm:cache_config_info gauge"
    yield f"vllm:cache_config_info{_labels({**cache, 'engine': '0'})} 1"
    yield "# HELP disaggc_sim_time_scale How much faster than an engine this double runs"
    yield f"# TYPE disaggc_sim_time_scale gauge\ndisaggc_sim_time_scale{_labels(own)} {counters.scale:.17g}"


def _histogram(name: str, own: Mapping[str, str], histogram: Histogram) -> Iterator[str]:
    yield f"# HELP {name} {name[5:].replace('_', ' ')}\n# TYPE {name} histogram"
    edges = [f"{float(edge)!r}" for edge in histogram.buckets] + ["+Inf"]
    for edge, count in zip(edges, accumulate(histogram.counts), strict=True):
        yield f"{name}_bucket{_labels({**own, 'le': edge})} {count}"
    yield f"{name}_count{_labels(own)} {sum(histogram.counts)}"
    yield f"{name}_sum{_labels(own)} {histogram.total:.17g}"
