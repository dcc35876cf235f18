"""What `local` says of the routing in effect."""

from __future__ import annotations

from dataclasses import replace

from disaggc.cli.local_routing import RoutingState

STATE = RoutingState("chat", 3, 3, looked=True, refusal=None)


def test_drained_replicas_are_named_so_that_none_is_forgotten():
    assert STATE.sentence == "chat: routing generation 3 in effect"
    some = replace(STATE, in_effect=4, drained=("chat/decode/0", "chat/decode/2"))
    assert some.sentence == (
        "chat: routing generation 4 in effect, made by administration from generation 3 of the file; "
        "drained: chat/decode/0, chat/decode/2"
    )
    assert replace(some, closed="all are").sentence.endswith("of the file; all are")
