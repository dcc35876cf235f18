import copy
import functools
import json
import operator
import pathlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.ir.plan import Role
from disaggc.routing.roles import Path, path_for, seats
from disaggc.routing.schema import table_schema
from disaggc.routing.table import dump_table, load_table
from disaggc.routing.text import TableError

ROOT = pathlib.Path(__file__).resolve().parents[2]


def replica(name="chat/decode/0", **more):
    return {"address": name, "host": "10.0.0.1", "port": 8100, "cohort": "a", **more}


def table(**more):
    pools = [
        {"address": "chat/prefill", "role": "prefill", "replicas": [replica("chat/prefill/0")]},
        {"address": "chat/decode", "role": "decode", "replicas": [replica("chat/decode/0")]},
    ]
    return {
        "service": "chat",
        "generation": 1,
        "models": ["m"],
        "dialect": "nixl",
        "max_model_len": 4096,
        "pools": pools,
        **more,
    }


def loads(value):
    return load_table(json.dumps(value))


def test_round_trip_is_canonical():
    first = loads(table())
    text = dump_table(first)
    assert load_table(text) == first
    assert dump_table(load_table(text)) == text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"surprise": 1}, "surprise"),
        ({"version": 2}, "version"),
        ({"models": []}, "models"),
        ({"timeouts": {"handoff_s": 30}}, "handoff_s"),
        ({"listen": {"admin_host": "0.0.0.0"}}, "admin_token"),  # noqa: S104 - must be refused
        ({"listen": {"metrics_host": "10.0.0.1", "metrics_port": 8000}}, "metrics_port"),
        ({"api_key": {}}, "exactly one"),
        ({"api_key": {"env": "A", "file": "/x"}}, "exactly one"),
        ({"dialect": "mooncake"}, "bootstrap_port"),
        ({"dialect": "nixl-push"}, "side_channel_port"),
        ({"dialect": "moriio-read"}, "notify_port|side_channel_port"),
        ({"dialect": "guess"}, "dialect"),
        (
            {"pools": [{"address": "x", "role": "decode", "replicas": [replica(), replica()]}]},
            "same `address`",
        ),
        (
            {"pools": [{"address": "x", "role": "decode", "split": [1, 0], "replicas": [replica()]}]},
            "flexible",
        ),
        (
            {"pools": [{"address": "x", "role": "flexible", "split": [1, 1], "replicas": [replica()]}]},
            "names 2 replicas",
        ),
        ({"pools": [{"address": "x", "role": "flexible", "replicas": [replica()]}]}, "flexible"),
    ],
)
def test_faults_are_named(change, words):
    with pytest.raises(TableError, match=words):
        loads(table(**change))


@pytest.mark.parametrize(
    "host",
    [
        "10.0.0.1/x",
        "a:80",
        "user@host",
        "http://a",
        "a b",
        "",
        "a\r\nHost: b",
        "a..b",
        "-a",
        "169.254.169.254#",
        "a" * 300,
        "[::1",
        "é",
        "a:b:c",
        ":::",
        "[1.2.3.4]",
    ],
)
def test_a_host_is_only_a_host(host):
    value = table()
    value["pools"][0]["replicas"][0]["host"] = host
    with pytest.raises(TableError):
        loads(value)


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "::1", "[fe80::1]", "gpu-01", "chat-decode-0.chat.llm.svc.cluster.local."]
)
def test_hosts(host):
    value = table()
    value["pools"][0]["replicas"][0]["host"] = host
    loads(value)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_noise_is_an_error_not_a_crash(noise):
    with pytest.raises(TableError):
        load_table(noise)


@given(st.data())
def test_any_damage_is_an_error_or_a_table(data):
    text = dump_table(loads(table()))
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.text(max_size=4)) + text[at + data.draw(st.integers(0, 6)) :]
    try:
        again = load_table(damaged)
    except TableError:
        return
    assert load_table(dump_table(again)) == again


def test_flexible_replicas_take_their_role_from_the_split():
    pools = [
        {
            "address": "f",
            "role": "flexible",
            "split": [1, 1],
            "replicas": [replica(f"f/{i}") for i in range(3)],
        }
    ]
    assert [s.role for s in seats(loads(table(pools=pools)))] == [Role.PREFILL, Role.DECODE, Role.DECODE]


def test_break_even():
    assert path_for(uncached_tokens=15, skip_below=0, block_size=16) is Path.LOCAL
    assert path_for(uncached_tokens=16, skip_below=0, block_size=16) is Path.REMOTE
    assert path_for(uncached_tokens=500, skip_below=512, block_size=16) is Path.LOCAL


JUNK = [None, True, -1, 0, 1.5, 1e400, 10**30, "", "x y", "x" * 600, [], [None], {}, {"x": 1}]
FOREIGN = re.compile(
    r"Input should|Value error|Tuple should|String should|List should|Dictionary|valid dictionary|validation|Field required|Extra inputs"
)


def places(value, path=()):
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield from places(below, (*path, key))


def test_every_fault_is_said_in_our_words():
    whole = json.loads(dump_table(loads(table())))
    said = set()
    for path in places(whole):
        for junk in JUNK if path else ([], 5, {}):
            changed = copy.deepcopy(whole) if path else junk
            if path:
                *outer, last = path
                functools.reduce(operator.getitem, outer, changed)[last] = junk
            try:
                load_table(json.dumps(changed))
            except TableError as fault:
                said |= {line.partition(": ")[2] for line in str(fault).splitlines()}
    assert len(said) > 15
    assert [line for line in sorted(said) if FOREIGN.search(line)] == []
    assert "0 entries, at least 1 wanted" in said


def test_schema_is_current(regen_golden):
    path = ROOT / "schemas" / "routing.v1.json"
    wanted = json.dumps(table_schema(), indent=2) + "\n"
    if regen_golden:
        path.write_text(wanted)
    assert path.read_text() == wanted, "run `make schemas` and review the difference"
