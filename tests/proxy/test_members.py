import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.proxy.members import NotAnObjectError, members, splice

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.text(), values, max_size=8)
styles = st.sampled_from([{}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}])


@given(objects, styles)
def test_members_are_what_json_says(said, style):
    text = json.dumps(said, **style).encode("utf-8", "surrogatepass")
    found = members(text)
    assert {m.key: json.loads(text[m.value : m.end].decode("utf-8", "surrogatepass")) for m in found} == said


@given(objects, styles, st.sets(st.text()), st.dictionaries(st.text(), values, max_size=2))
def test_splice_drops_and_adds(said, style, drop, add):
    text = json.dumps(said, **style).encode("utf-8", "surrogatepass")
    drop |= set(list(said)[::2])
    added = json.dumps(add)[1:-1].encode()
    result = json.loads(
        b"".join(splice(text, members(text), drop=drop, add=added)).decode("utf-8", "surrogatepass")
    )
    assert result == {k: v for k, v in said.items() if k not in drop} | add


@given(objects, st.integers(0, 400), st.binary(max_size=3))
def test_a_damaged_object_is_refused_or_still_json(said, at, noise):
    text = json.dumps(said).encode()
    damaged = text[: at % (len(text) + 1)] + noise + text[at % (len(text) + 1) + 1 :]
    try:
        found = members(damaged)
    except NotAnObjectError:
        return
    assert damaged.strip().startswith(b"{")
    assert all(0 < m.start < m.value < m.end <= len(damaged) for m in found)


@pytest.mark.parametrize(
    "key", ["kv_transfer_params", "kv\\u005ftransfer_params", "\\u006bv_transfer_params"]
)
def test_a_name_cannot_hide_behind_escapes(key):
    text = b'{"a":1,"' + key.encode() + b'":{"x":[1,"}"]},"b":2}'
    assert json.loads(b"".join(splice(text, members(text), drop={"kv_transfer_params"}, add=b""))) == {
        "a": 1,
        "b": 2,
    }


def test_repeated_names_all_go():
    text = b'{"k":1,"a":2,"k":{"k":3}}'
    assert b"".join(splice(text, members(text), drop={"k"}, add=b"")) == b'{"a":2}'


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"{}x",
        b'{"a"}',
        b'{"a":}',
        b'{"a":1,}',
        b"{,}",
        b'{"a":1 "b":2}',
        b'{"a":01}',
        b'{"a":[1}',
        b'{"a":"x}',
        b"[1]",
        b'{"a":tru}',
        b'{"a":1e}',
        b"\x00{}",
    ],
)
def test_what_is_no_object(text):
    with pytest.raises(NotAnObjectError):
        members(text)


def test_deep_nesting_is_refused_not_a_crash():
    with pytest.raises(NotAnObjectError):
        members(b'{"a":' + b"[" * 100_000)


def test_a_megabyte_is_cheap():
    import time

    text = json.dumps({"model": "m", "prompt": 'say "hi"\n' * 110_000, "max_tokens": 3}).encode()
    begun = time.process_time()
    assert len(members(text)) == 3
    assert time.process_time() - begun < 0.5
