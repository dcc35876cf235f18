import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from disaggc.proxy.asks import APIS, CHAT, COMPLETIONS, RESPONSES, Ask
from disaggc.proxy.failures import RefusedError
from disaggc.proxy.members import IDENTITY

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",)))
)
names = st.text(st.characters(exclude_categories=("Cs",)))
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(
    names.filter(
        lambda n: n not in {*IDENTITY, "vllm_xargs", "stream", "model"} and not n.startswith("max_")
    ),
    values,
    max_size=8,
)
styles = st.sampled_from([{}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}])
PARAMS = Raw(b'{"remote_block_ids":[[1]]}')


@given(objects, styles)
def test_decode_gets_what_the_client_said(said, style):
    ask = Ask(COMPLETIONS, json.dumps(said, **style).encode())
    assert json.loads(ask.decode_body(PARAMS)) == said | {"kv_transfer_params": {"remote_block_ids": [[1]]}}
    assert json.loads(ask.decode_body(None)) == said


@given(objects, styles, st.sampled_from(list(APIS.values())))
def test_prefill_gets_the_same_prompt_and_one_token(said, style, api):
    said |= {"min_tokens": 3, "n": 1, "stream": True, "messages": [{"role": "user", "content": "a"}]}
    body = json.loads(
        Ask(api, json.dumps(said, **style).encode()).prefill_body(PARAMS, keeps_only_capped=False)
    )
    assert body["stream"] is False
    assert body["messages"] == said["messages"]
    assert body["max_output_tokens" if api is RESPONSES else "max_tokens"] == 1
    assert not {"min_tokens", "n", "stream_options"} & set(body)
    assert body.get("return_token_ids", False) is (api is CHAT)


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("where", [("prompt",), ("prompt", "suffix"), ("a", "prompt", "b")])
def test_a_large_prompt_is_sent_from_where_it_was_received(where, count):
    said = {**dict.fromkeys(where, 'x\u00e9"' * 50_000), **{f"n{i}": i for i in range(count)}}
    ask = Ask(COMPLETIONS, json.dumps(said).encode())
    for body in (ask.prefill_body(PARAMS, keeps_only_capped=False), ask.decode_body(PARAMS)):
        sent = json.loads(b"".join(body))
        assert {name: sent[name] for name in said} == said
        assert sent["kv_transfer_params"] == json.loads(bytes(PARAMS))
        assert [piece.obj for piece in body if isinstance(piece, memoryview)] == [ask.found[n] for n in where]


@given(objects, st.integers(0, 400), st.binary(max_size=3))
def test_a_damaged_object_is_refused_or_still_json(said, at, noise):
    text = json.dumps(said).encode()
    damaged = text[: at % (len(text) + 1)] + noise + text[at % (len(text) + 1) + 1 :]
    try:
        body = Ask(COMPLETIONS, damaged).decode_body(None)
    except RefusedError as refused:
        body, status = b"{}", refused.status
    else:
        status = 400
    assert status == 400
    json.loads(body.decode("utf-8", "replace"))


@pytest.mark.parametrize(
    "key", ["kv_transfer_params", "kv\\u005ftransfer_params", "\\u006bv_transfer_params"]
)
def test_a_name_cannot_hide_behind_escapes(key):
    ask = Ask(COMPLETIONS, b'{"a":1,"' + key.encode() + b'":{"x":[1,"}"]},"b":2}')
    assert ask.stripped
    assert json.loads(ask.decode_body(None)) == {"a": 1, "b": 2}


def test_a_name_that_stands_twice_reaches_an_engine_once():
    ask = Ask(COMPLETIONS, b'{"kv_transfer_params":1,"a":2,"kv_transfer_params":{"b":3},"a":4}')
    assert ask.decode_body(None) == b'{"a":4}'


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"{}x", b'{"a"}', b'{"a":}', b'{"a":1,}', b"{,}", b'{"a":1 "b":2}', b'{"a":01}', b'{"a":[1}',
        b'{"a":"x}', b"[1]", b'{"a":tru}', b'{"a":1e}', b"\x00{}", b'{"a":' + b"[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_object_is_refused(text):
    with pytest.raises(RefusedError) as refused:
        Ask(COMPLETIONS, text)
    assert refused.value.status == 400


def test_a_megabyte_is_cheap():
    text = json.dumps({"model": "m", "prompt": 'say "hi"\n' * 110_000, "max_tokens": 3}).encode()
    begun = time.process_time()
    assert Ask(COMPLETIONS, text).output_limit == 3
    assert time.process_time() - begun < 0.5
