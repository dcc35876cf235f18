"""In which order a supervisord is told to take over another file."""

from __future__ import annotations

from pathlib import Path

from disaggc.hosts.supervision import Supervision


def test_a_proxy_that_changes_ends_before_the_engines_it_needs(monkeypatch):
    priority = {"chat-decode-0": 100, "chat-prefill-0": 100, "chat-proxy-0": 200}
    asked: list[tuple[str, ...]] = []

    def ask(_: Supervision, method: str, *arguments: str) -> object:
        asked.append((method.removeprefix("supervisor."), *arguments))
        if method == "supervisor.reloadConfig":
            return [[["chat-decode-1"], ["chat-decode-0", "chat-proxy-0"], ["chat-prefill-0"]]]
        return [{"name": name, "process_prio": prio, "inuse": True} for name, prio in priority.items()]

    monkeypatch.setattr(Supervision, "_ask", ask)
    touched = Supervision(Path()).update()
    assert set(touched) == {*priority, "chat-decode-1"}
    assert asked.index(("getAllConfigInfo",)) < asked.index(("reloadConfig",)), (
        "afterwards it tells of the new file"
    )
    stopped = [arguments[0] for method, *arguments in asked if method == "stopProcessGroup"]
    assert stopped[0] == "chat-proxy-0"
    assert sorted(stopped) == sorted(priority)
    first_start = next(place for place, one in enumerate(asked) if one[0] == "addProcessGroup")
    assert all(one[0] != "stopProcessGroup" for one in asked[first_start:]), (
        "ports may go from one to another"
    )
