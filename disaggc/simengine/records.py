"""What a sequence adds to the counters at its first word and at its end. Pure arithmetic on its times."""

from __future__ import annotations

from disaggc.simengine.metrics import Counters
from disaggc.simengine.sequence import Sequence


def record_first(counters: Counters, sequence: Sequence, at: float) -> None:
    """The prompt is in: where its tokens came from, and how long it took."""
    sequence.first_at = at
    value = counters.value
    computed = max(sequence.prompt - sequence.cached - sequence.external, 0)
    value["prompt_tokens"] += sequence.prompt
    value["prompt_tokens_cached"] += sequence.cached + sequence.external
    counters.add("prompt_tokens_by_source", "source", "local_compute", amount=computed)
    counters.add("prompt_tokens_by_source", "source", "local_cache_hit", amount=sequence.cached)
    counters.add("prompt_tokens_by_source", "source", "external_kv_transfer", amount=sequence.external)
    counters.add("prompt_tokens_cached_by_source", "source", "device", amount=sequence.cached)
    counters.add("prompt_tokens_cached_by_source", "source", "external_unspecified", amount=sequence.external)
    value["external_prefix_cache_queries"] += sequence.prompt - sequence.cached
    value["external_prefix_cache_hits"] += sequence.external
    counters.hist["time_to_first_token_seconds"].observe(at - sequence.arrived)
    counters.hist["request_prefill_kv_computed_tokens"].observe(computed)


def record_end(counters: Counters, sequence: Sequence, reason: str) -> None:
    """The sequence is over."""
    counters.add("request_success", "finished_reason", reason)
    if not sequence.first_at:
        return
    hist, end, generated = counters.hist, sequence.last_at, sequence.generated
    decode_s = end - sequence.first_at
    hist["request_prompt_tokens"].observe(sequence.prompt)
    hist["request_generation_tokens"].observe(generated)
    hist["request_max_num_generation_tokens"].observe(generated)
    hist["request_params_max_tokens"].observe(sequence.wish.max_tokens)
    hist["request_params_n"].observe(sequence.wish.choices)
    hist["request_time_per_output_token_seconds"].observe(decode_s / max(generated - 1, 1))
    hist["e2e_request_latency_seconds"].observe(end - sequence.arrived)
    hist["request_queue_time_seconds"].observe(max(sequence.scheduled - sequence.arrived, 0.0))
    hist["request_inference_time_seconds"].observe(end - sequence.scheduled)
    hist["request_prefill_time_seconds"].observe(sequence.first_at - sequence.scheduled)
    hist["request_decode_time_seconds"].observe(decode_s)
    hist["request_num_preemptions"].observe(sequence.preemptions)
