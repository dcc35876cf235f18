import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.proxy.framing import LAST_CHUNK, BadAnswerError, ChunkBorders, chunk, chunks, dechunk, parse_head

HUGE = bytes(range(256)) * (12 << 10)
FRAMED_HUGE = chunk(b"before") + chunk(HUGE) + chunk(b"after") + LAST_CHUNK
bodies = st.lists(st.binary(min_size=1, max_size=40), max_size=8)


def cut(data, sizes):
    at = 0
    for size in sizes:
        if at >= len(data):
            return
        yield data[at : at + size]
        at += size
    if at < len(data):
        yield data[at:]


@given(bodies, st.lists(st.integers(1, 30), max_size=40))
def test_any_split_gives_the_same_bytes_cut_at_borders(parts, sizes):
    framed = b"".join(map(chunk, parts)) + LAST_CHUNK
    borders, out = ChunkBorders(), b""
    for piece in cut(framed, sizes):
        let = borders.feed(piece)
        out += let
        assert let == b"" or dechunk(let) is not None
        if not borders.ended:
            assert b"".join(parts).startswith(dechunk(out))
    assert out + LAST_CHUNK == framed
    assert borders.ended
    assert dechunk(out) == b"".join(parts)


@given(st.binary(min_size=1, max_size=60), st.lists(st.integers(1, 20), max_size=20))
def test_noise_never_crashes(noise, sizes):
    borders = ChunkBorders()
    try:
        for piece in cut(noise, sizes):
            borders.feed(piece)
    except BadAnswerError:
        pass


@pytest.mark.parametrize(
    "bad",
    [
        b"zz\r\n",
        b"5\r\nhelloXX",
        b"-1\r\n",
        b"0x5\r\nhello\r\n",
        b"1_0\r\n",
        b"fffffffff\r\n",
        b"0\r\n" + b"a: b\r\n" * 20_000,
    ],
)
def test_broken_framing_is_refused(bad):
    with pytest.raises(BadAnswerError):
        ChunkBorders().feed(bad)


@pytest.mark.parametrize("last", [LAST_CHUNK, b"0;x=y\r\nage: 0\r\n\r\n"])
@pytest.mark.parametrize("more", [b"", b"more", LAST_CHUNK])
def test_what_follows_the_last_chunk_is_dropped_and_told(last, more):
    borders = ChunkBorders()
    assert borders.feed(chunk(b"a") + last + more) == chunk(b"a")
    assert (borders.ended, borders.surplus) == (True, more != b"")


@given(st.integers(0, 70000))
def test_a_huge_chunk_comes_out_as_several(first):
    borders, out = ChunkBorders(), []
    for piece in cut(FRAMED_HUGE, [first, *[65536] * 100]):
        let = borders.feed(piece)
        out += chunks(let)
        assert not let or out[-1][1] == len(let)  # whole chunks at any time
    assert b"".join(b for _, _, b in out) == b"before" + HUGE + b"after"
    assert max(len(b) for _, _, b in out) < len(HUGE)
    assert borders.ended


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/2 200 OK", b"HTTP/1.1 20 OK", b"HTTP/1.1 200 OK\r\nbad", b"HTTP/1.1 200 OK\r\na : b",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6", b"HTTP/1.1 200 OK\r\ncontent-length: +5",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 5", b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip",
        b"HTTP/1.1 200 OK\r\na: b\nc: d", b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip",
    ],
)  # fmt: skip
def test_ambiguous_heads_are_refused(head):
    with pytest.raises(BadAnswerError):
        parse_head(head)


def test_head():
    head = parse_head(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close"
    )
    assert (head.status, head.chunked, head.length, head.keep_alive) == (200, True, None, False)
    assert head.content_type == b"text/event-stream"
    assert parse_head(b"HTTP/1.1 204 No Content").length == 0
    assert parse_head(b"HTTP/1.0 200 OK\r\ncontent-length: 3").keep_alive is False
