"""What a prefill's answer hands over, or why it failed although it says 200."""

import json

import pytest

from disaggc.proxy.failures import LegError
from disaggc.proxy.verdicts import handed_over
from disaggc.routing.table import Dialect

KEPT = {
    "do_remote_prefill": True, "remote_block_ids": [[1, 2]], "remote_engine_id": "e", "remote_host": "h",
    "remote_port": 1, "unheard_of": {"a": [1.50, "\u00e9"]},
}  # fmt: skip
SAID = {"choices": [{"finish_reason": "length"}], "usage": {"prompt_tokens": 9}, "kv_transfer_params": KEPT}


def handed(dialect=Dialect.NIXL, /, **changes):
    return handed_over(json.dumps({**SAID, **changes}).encode(), dialect)


def test_parameters_pass_byte_for_byte():
    said = handed()
    assert bytes(said.params) == json.dumps(KEPT).encode()
    assert (said.prompt_tokens, said.cached_tokens) == (9, None)


def test_token_ids_go_along():
    assert json.loads(bytes(handed(prompt_token_ids=[7, 8]).params)) == {**KEPT, "prompt_token_ids": [7, 8]}
    assert json.loads(bytes(handed(prompt_token_ids=None).params)) == KEPT


@pytest.mark.parametrize(
    ("changes", "cached"),
    [
        ({"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}}, 4),
        ({"usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}}}, 4),
        ({"usage": {"input_tokens": 9, "cache_read_input_tokens": 4}}, 4),
        ({"usage": {"prompt_tokens": 9, "prompt_tokens_details": None}}, None),
        ({"kv_transfer_params": {**KEPT, "remote_prefill_cached_tokens": 5}}, 5),
    ],
)
def test_what_prefill_had_cached(changes, cached):
    assert (handed(**changes).prompt_tokens, handed(**changes).cached_tokens) == (9, cached)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kv_transfer_params": None}, "no-params"), ({"kv_transfer_params": []}, "bad-answer"),
        *[({"kv_transfer_params": {**KEPT, name: None}}, "no-params") for name in KEPT if name != "unheard_of"],
        *[({"kv_transfer_params": {**KEPT, "remote_block_ids": none}}, "no-params") for none in ([], [[]])],
        ({"kv_transfer_params": {**KEPT, "do_remote_prefill": False}}, "no-params"),
        ({"choices": [{"finish_reason": "abort"}]}, "aborted"), ({"error": {"message": "x"}}, "aborted"),
        ({"status": "failed"}, "aborted"), ({"choices": 1}, "bad-answer"),
    ],
)  # fmt: skip
def test_what_decode_could_not_use_is_a_failed_prefill(changes, reason):
    fault = handed(**changes)
    assert isinstance(fault, LegError)
    assert fault.reason == reason


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"kv_transfer_params":{"a":}}', b"[" * 100_000]
)
def test_what_is_no_answer_is_a_failed_prefill(body):
    assert handed_over(body, Dialect.NIXL).reason == "bad-answer"


def test_other_dialects_say_other_things():
    assert (
        bytes(handed(Dialect.MORIIO_READ, kv_transfer_params={"transfer_id": "x"}).params)
        == b'{"transfer_id": "x"}'
    )
