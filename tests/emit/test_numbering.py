"""Numbers of routing files: kept without a change, above everything before with one, alike on all hosts of a service."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from disaggc.emit.api import TargetChoice, emit
from disaggc.emit.numbering import Standing, numbered
from disaggc.spec.model import ComposeTarget, KubernetesTarget, SystemdTarget
from tests.emit.plans import five_nodes

TARGETS = {"kubernetes": KubernetesTarget(), "systemd": SystemdTarget(), "compose": ComposeTarget()}


def made(target: str):
    return emit(five_nodes(), TargetChoice(TARGETS[target])).value


def routing(artifacts) -> dict[str, str]:
    return {one.path: one.text for one in artifacts.artifacts if one.address.endswith("/routing")}


def numbers(artifacts) -> set[str]:
    lines = [line.strip() for text in routing(artifacts).values() for line in text.splitlines()]
    return {line for line in lines if line.startswith('"generation"')}


def standing(texts: dict[str, str], administered: int = 0):
    return lambda path: Standing(texts[path], administered) if path in texts else None


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_numbers_count_what_changes(target):
    first = made(target)
    assert numbered(first, standing({})) == first, "a fresh folder changes nothing"
    assert numbers(first) == {'"generation": 1,'}
    seven = numbered(first, standing({}), least=7)
    assert numbers(seven) == {'"generation": 7,'}
    assert numbered(first, standing(routing(seven))) == seven, "the same table keeps its number"
    assert numbered(first, standing(routing(seven), 12)) == seven, "and what administration made of it"
    other = {
        path: text.replace('"policy": "least-work"', '"policy": "round-robin"')
        for path, text in routing(seven).items()
    }
    assert other != routing(seven)
    assert numbers(numbered(first, standing(other))) == {'"generation": 8,'}
    assert numbers(numbered(first, standing(other, 12))) == {'"generation": 13,'}
    assert numbers(numbered(first, standing(other), least=40)) == {'"generation": 40,'}
    assert numbers(numbered(first, standing(dict.fromkeys(other, "damaged")))) == {'"generation": 1,'}
    hand = dict.fromkeys(other, '{"policy":"x","generation":41,"service":"chat"}')
    assert numbers(numbered(first, standing(hand))) == {'"generation": 42,'}
    untouched = {one.path: one.text for one in first.artifacts if not one.address.endswith("/routing")}
    again = numbered(first, standing(other, 12)).artifacts
    assert {one.path: one.text for one in again if one.path in untouched} == untouched


def test_another_compiler_is_no_other_table():
    first = numbered(made("kubernetes"), standing({}), least=3)
    older = {
        path: re.sub(r'disaggc.dev/compiler: ".*"', 'disaggc.dev/compiler: "0.0.1"', text)
        for path, text in routing(first).items()
    }
    assert older != routing(first)
    assert numbered(made("kubernetes"), standing(older)) == first


def test_all_hosts_of_a_service_have_one_number():
    """A host that a proxy is new on, or that was left behind, counts with the others."""
    one = made("systemd")
    (path,) = routing(one)
    file = next(a for a in one.artifacts if a.path == path)
    two = replace(one, artifacts=(*one.artifacts, replace(file, path=f"second/{path}")))
    there = {path: routing(numbered(one, standing({}), least=5))[path]}
    assert numbers(numbered(two, standing(there))) == {'"generation": 6,'}
    both = {**there, f"second/{path}": there[path].replace('"generation": 5', '"generation": 9')}
    assert numbers(numbered(two, standing(both))) == {'"generation": 10,'}
