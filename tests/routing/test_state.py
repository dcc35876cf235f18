import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.routing.admission import ServedRate, WaitingLine, has_room
from disaggc.routing.circuit import Circuit
from disaggc.routing.length import LEARNED_AFTER, LengthRatio, LengthVerdict
from disaggc.routing.limits import Admission
from disaggc.routing.prefix import PrefixMemory, block_keys
from disaggc.routing.table import ReplicaEntry


def test_circuit_opens_after_failures_in_a_row_and_lets_one_try():
    c = Circuit(threshold=3, rest_s=5)
    for now in (0.0, 1.0):
        assert not c.failed(now)
    c.succeeded()
    assert [c.failed(t) for t in (2.0, 3.0, 4.0)] == [False, False, True]
    assert not c.allows(8.9)
    assert c.allows(9.0)
    c.sent()
    assert not c.allows(9.1), "one try at a time"
    assert c.failed(9.2)
    assert not c.allows(14.1)
    assert c.allows(14.2)
    c.sent()
    c.withdrawn()
    assert c.allows(14.3), "a client that left proves nothing"
    c.sent()
    c.succeeded()
    assert c.allows(14.4)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), max_size=60), st.integers(0, 20))
def test_line_is_bounded_ordered_and_fair(steps, limit):
    line, model = WaitingLine(limit), []
    for number, (priority, leave) in enumerate(steps):
        item = (priority, number)
        if line.offer(item, priority):
            model.append(item)
        assert len(line) == len(model) <= limit
        if leave and model:
            line.leave(model[0])
            model.pop(0)
    out = []
    while len(line):
        assert line.first() is not None
        out.append(line.take())
    assert out == sorted(model, key=lambda item: (-item[0], item[1]))


def entry(**more):
    return ReplicaEntry(address="d/0", host="h", port=1, cohort="a", **more)


@given(st.floats(1, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_more_room_never_refuses_what_less_took(limit, held, ask):
    tight, wide = entry(kv_tokens=int(limit)), entry(kv_tokens=int(limit) * 2)
    if has_room(tight, Admission(), requests=1, tokens=held, ask=ask):
        assert has_room(wide, Admission(), requests=1, tokens=held, ask=ask)
    assert has_room(tight, Admission(), requests=0, tokens=0, ask=ask), "an empty engine takes anything"


def test_sequences_are_a_limit_of_their_own():
    assert not has_room(entry(max_seqs=4), Admission(), requests=4, tokens=0, ask=1)
    assert has_room(entry(max_seqs=4), Admission(seqs_overcommit=2), requests=4, tokens=0, ask=1)
    assert not has_room(entry(max_seqs=4), Admission(kv_overcommit=2), requests=4, tokens=0, ask=1)


def test_kv_is_promised_more_than_once_where_the_file_says_so():
    full = {"requests": 1, "tokens": 90, "ask": 20}
    assert not has_room(entry(kv_tokens=100), Admission(seqs_overcommit=2), **full)
    assert has_room(entry(kv_tokens=100), Admission(kv_overcommit=1.1), **full)


def test_retry_after_follows_the_rate():
    rate = ServedRate()
    assert rate.retry_after(5, 0.0) == 1
    for i in range(200):
        rate.finished(i * 0.1)
    assert rate.value == pytest.approx(10, rel=0.2)
    assert rate.retry_after(49, 20.0) == pytest.approx(5, abs=2)
    assert rate.retry_after(10_000, 20.0) == 60


@given(
    st.lists(st.tuples(st.integers(100, 100_000), st.floats(0.2, 0.3)), min_size=LEARNED_AFTER, max_size=200)
)
def test_ratio_never_refuses_what_fits_by_far(samples):
    ratio = LengthRatio()
    for size, per_byte in samples:
        ratio.learn(size, max(1, int(size * per_byte)))
    assert 0.19 <= ratio.mean <= 0.31
    assert ratio.verdict(10_000, 10_000) is LengthVerdict.FITS
    assert ratio.at_least(10_000) <= 3_100


def test_ratio_knows_nothing_at_first():
    ratio = LengthRatio()
    assert ratio.verdict(10**9, 100) is LengthVerdict.FITS, "the engine decides until something was learned"
    for _ in range(LEARNED_AFTER):
        ratio.learn(1000, 250)
    assert ratio.verdict(10_000, 100) is LengthVerdict.TOO_LONG
    assert ratio.verdict(400, 100) is LengthVerdict.ASK
    assert ratio.verdict(300, 100) is LengthVerdict.FITS


@given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=200))
def test_block_keys_agree_exactly_on_the_shared_blocks(shared, one, two):
    a, b = block_keys(shared + one, block=16), block_keys(shared + two, block=16)
    common = 0
    while common < min(len(a), len(b)) and a[common] == b[common]:
        common += 1
    same = 0
    while (shared + one)[same : same + 1] == (shared + two)[same : same + 1] != b"":
        same += 1
    assert common == min(same // 16, len(a), len(b))


def test_memory_forgets_the_oldest_and_the_restarted():
    memory = PrefixMemory(capacity=4)
    keys = block_keys(bytes(range(200)), block=50)
    memory.note("a", keys)
    assert memory.cached_bytes("a", keys, block=50) == 200
    assert memory.cached_bytes("b", keys, block=50) == 0
    memory.note("b", keys[:2])
    assert len(memory) == 4
    assert memory.cached_bytes("a", keys, block=50) == 0
    memory.forget("b")
    assert memory.cached_bytes("b", keys, block=50) == 0
