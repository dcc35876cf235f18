from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disaggc.ir.plan import Shape
from disaggc.spec.lock import Lock, LockedPool, LockedService, LockedSlot, parse_lock, read_lock, write_lock
from tests.effort import examples

_names = st.text(min_size=1, max_size=20).filter(
    lambda text: not any("\ud800" <= c <= "\udfff" for c in text)
)
_slots = st.builds(
    LockedSlot, node=_names, devices=st.lists(st.integers(0, 15), min_size=1, max_size=8).map(tuple)
)
_pools = st.builds(
    LockedPool,
    role=st.sampled_from(["prefill", "decode", "colocated", "flexible"]),
    group=_names,
    accelerator=_names,
    shape=st.builds(
        Shape, tp=st.integers(1, 64), pp=st.integers(1, 4), dp=st.integers(1, 8), ep=st.integers(1, 64)
    ),
    replicas=st.integers(1, 40),
    batch=st.floats(0, 1e9, allow_nan=False),
    max_num_seqs=st.integers(1, 100_000),
    placement=st.lists(st.lists(_slots, max_size=3).map(tuple), max_size=3).map(tuple),
)
_services = st.builds(
    LockedService,
    mode=st.sampled_from(["disaggregated", "colocated", "flexible"]),
    ratio=_names,
    engine=_names,
    pools=st.lists(_pools, min_size=1, max_size=3).map(tuple),
)
locks = st.builds(
    Lock, disaggc=_names, spec=_names, catalog=_names, services=st.dictionaries(_names, _services, max_size=3)
)

_LOCK = Lock(
    disaggc="0.1.0",
    spec="sha256:aa",
    catalog="sha256:bb",
    services={
        "chat": LockedService(
            mode="disaggregated",
            ratio="1P1D",
            engine="0.33.0",
            pools=(
                LockedPool(
                    role="decode",
                    group="mi300x",
                    accelerator="mi300x",
                    shape=Shape(tp=8),
                    replicas=1,
                    batch=12.5,
                    max_num_seqs=128,
                    placement=((LockedSlot(node="gpu-01", devices=(0, 1)),),),
                ),
            ),
        )
    },
)


def test_a_degree_by_which_kv_is_shared_is_recorded_where_there_is_one() -> None:
    (pool,) = _LOCK.services["chat"].pools
    shared = pool.model_copy(update={"shape": Shape(tp=8, dcp=8)})
    service = _LOCK.services["chat"].model_copy(update={"pools": (shared,)})
    lock = _LOCK.model_copy(update={"services": {"chat": service}})
    assert "        shape: {tp: 8, pp: 1, dp: 1, ep: 1, dcp: 8}" in write_lock(lock).splitlines()
    assert parse_lock(write_lock(lock), "disaggc.lock").value == lock


@settings(max_examples=examples(40))
@given(locks)
def test_every_lock_reads_back_as_it_was_written(lock: Lock) -> None:
    outcome = parse_lock(write_lock(lock), "disaggc.lock")
    assert outcome.diagnostics == ()
    assert outcome.value == lock
    assert write_lock(lock) == write_lock(outcome.value)


def test_a_lock_is_readable_in_a_review() -> None:
    assert write_lock(_LOCK).splitlines()[1:] == [
        "version: 1",
        'disaggc: "0.1.0"',
        'spec: "sha256:aa"',
        'catalog: "sha256:bb"',
        "services:",
        '  "chat":',
        '    mode: "disaggregated"',
        '    ratio: "1P1D"',
        '    engine: "0.33.0"',
        "    pools:",
        "      - role: decode",
        '        group: "mi300x"',
        '        accelerator: "mi300x"',
        "        shape: {tp: 8, pp: 1, dp: 1, ep: 1}",
        "        replicas: 1",
        "        batch: 12.5",
        "        max_num_seqs: 128",
        "        placement:",
        '          - [{node: "gpu-01", devices: [0, 1]}]',
    ]


@pytest.mark.parametrize(
    ("broken", "place", "part"),
    [
        (("mode: ", "mod: "), (7, 3), "services.chat"),
        (("version: 1", "version: 2"), (2, 10), "another version"),
        (("tp: 8", "tp: x"), (15, 21), "shape.tp"),
        (("devices: [0, 1]", "devices: []"), (20, 40), "devices"),
        (("replicas: 1", "replicas: 0"), (16, 19), "replicas"),
        (("placement:", "placement: ["), (20, 11), "not readable"),
    ],
)
def test_a_broken_lock_is_one_finding_with_its_place(
    broken: tuple[str, str], place: tuple[int, int], part: str
) -> None:
    outcome = parse_lock(write_lock(_LOCK).replace(*broken), "disaggc.lock")
    assert outcome.value is None
    [finding] = outcome.diagnostics
    assert finding.code == "DGC701"
    assert part in finding.message
    assert finding.span is not None
    assert (finding.span.line, finding.span.column) == place


def test_a_lock_that_does_not_exist_is_no_finding(tmp_path: Path) -> None:
    assert read_lock(tmp_path / "disaggc.lock").diagnostics == ()


def test_a_lock_that_is_a_directory_or_binary_is_one(tmp_path: Path) -> None:
    (tmp_path / "disaggc.lock").mkdir()
    assert [d.code for d in read_lock(tmp_path / "disaggc.lock").diagnostics] == ["DGC701"]
    (tmp_path / "binary.lock").write_bytes(b"version: 1\n\0")
    [finding] = read_lock(tmp_path / "binary.lock").diagnostics
    assert finding.span is not None
    assert (finding.code, finding.span.line, finding.span.column) == ("DGC701", 2, 1)


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_no_text_raises(content: str | bytes) -> None:
    text = content if isinstance(content, str) else content.decode("latin-1")
    outcome = parse_lock(text, "disaggc.lock")
    assert outcome.value is None
    assert [d.code for d in outcome.diagnostics] == ["DGC701"]
