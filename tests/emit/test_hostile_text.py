"""No text of a spec breaks out of its place: each one is refused with DGC603, or the files read back as it was.

The parsers here are libyaml and the strict unit reader (test_unit_reader holds its rules); the stages under testbed ask
compose and systemd themselves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disaggc.diagnostics.model import Severity, has_errors
from disaggc.emit.api import TargetChoice, TargetSettings, emit
from disaggc.emit.artifacts import Artifact
from disaggc.emit.reading.documents import all_interpolated
from disaggc.emit.reading.units import read_unit
from disaggc.routing.table import load_table
from disaggc.spec.model import ComposeTarget, KubernetesTarget, SystemdTarget
from tests.effort import examples
from tests.emit.emitted import parsed
from tests.emit.hostile import any_texts, texts
from tests.emit.plans import Texts, colocated

TARGETS: dict[str, TargetSettings] = {
    "systemd": SystemdTarget(),
    "compose": ComposeTarget(),
    "kubernetes": KubernetesTarget(),
}


def hostile_texts(values: st.SearchStrategy[str]) -> st.SearchStrategy[Texts]:
    """Every free text of a service at once."""
    safe_or_not = st.just(None) | values
    return st.builds(
        Texts,
        model=values,
        weights=values | values.map(lambda text: "/" + text),
        served=values.filter(bool).map(lambda text: text[:500]),
        revision=safe_or_not,
        command=values.map(lambda text: "/opt/" + text) | st.just("/opt/vllm"),
        proxy_command=safe_or_not,
        image=values | st.just("example.org/a@sha256:" + "0" * 64),
        proxy_image=safe_or_not,
        env=st.dictionaries(st.sampled_from(["A", "B"]), values, max_size=2).map(lambda d: tuple(d.items())),
        secrets=st.lists(st.tuples(st.just("TOKEN"), values | st.just("hf")), max_size=1).map(tuple),
        settings=st.lists(st.tuples(st.sampled_from(["chat-template", "x"]), values), max_size=2).map(tuple),
        api_key=st.just(None) | values | st.just("KEY"),
        api_key_file=st.just(None),
    )  # fmt: skip


def placed(target: str, artifacts: tuple[Artifact, ...]) -> list[tuple[list[str], dict[str, Any]]]:
    """Command line and literal environment of every engine, as the target's own rules read them."""
    found = []
    for artifact in artifacts:
        if target == "systemd" and "colocated@" in artifact.path:
            unit = read_unit(artifact.text)
            (command,) = unit.commands("ExecStart")
            found.append((list(command[1:]), dict(unit.environment())))
        if target == "compose" and artifact.path.endswith("compose.yaml"):
            document: Any = all_interpolated(parsed(artifact.text))
            for name, service in document["services"].items():
                if "-colocated-" in name:
                    command = [word for word in service["command"] if word != "vllm"]
                    found.append((command, service["environment"]))
        if target == "kubernetes" and "/colocated-" in artifact.path:
            document = parsed(artifact.text)
            if document["kind"] == "StatefulSet":
                engine = document["spec"]["template"]["spec"]["containers"][0]
                env = {e["name"]: expanded(e["value"]) for e in engine["env"] if "value" in e}
                found.append(([expanded(word) for word in engine["args"][1:]], env))
    return found


def expanded(text: str) -> str:
    """Kubernetes' own reading: `$$` is `$`, `$(NAME)` is a variable; only the pod's address is one here."""
    out, at = [], 0
    while at < len(text):
        if text.startswith("$(DISAGGC_POD_IP)", at):
            out.append("10.0.0.1")
            at += len("$(DISAGGC_POD_IP)")
            continue
        if text[at] == "$":
            assert text[at : at + 2] == "$$", f"a reference stands in {text!r}"
            at += 1
        out.append(text[at])
        at += 1
    return "".join(out)


def compare(target: str, given_texts: Texts, artifacts: tuple[Artifact, ...]) -> None:
    """The files say what was given."""
    engines = placed(target, artifacts)
    assert len(engines) == 2
    for words, env in engines:
        assert words[:2] == ["serve", given_texts.weights]
        flags = [("served-model-name", given_texts.served), *given_texts.settings]
        flags += [("revision", given_texts.revision)] if given_texts.revision is not None else []
        for name, text in flags:
            at = words.index(f"--{name}") if f"--{name}" in words else -1
            assert f"--{name}={text}" in words or text in words[at + 1 :]
        for name, text in given_texts.env:
            assert env[name] == text
    for artifact in artifacts:
        if artifact.path.endswith("routing.json"):
            assert load_table(artifact.text).models == (given_texts.served,)
        assert "\x00" not in artifact.text


@pytest.mark.parametrize("target", sorted(TARGETS))
@settings(max_examples=examples(50))
@given(given_texts=hostile_texts(any_texts()))
def test_every_free_text_at_once(target, given_texts):
    outcome = emit(colocated(given_texts), TargetChoice(TARGETS[target]))
    if outcome.value is None:
        assert {d.code for d in outcome.diagnostics if d.severity is Severity.ERROR} <= {"DGC602", "DGC603"}
        assert has_errors(outcome.diagnostics)
    else:
        compare(target, given_texts, outcome.value.artifacts)


FIELDS = ("weights", "served", "revision", "env", "settings")


@pytest.mark.parametrize("target", sorted(TARGETS))
@settings(max_examples=examples(50))
@given(field=st.sampled_from(FIELDS), text=texts())
def test_one_hostile_text_is_placed_and_not_refused(target, field, text):
    """Arguments and variables carry any text a process can be given: nothing is refused for its looks."""
    if field == "served":
        text = text[:500] or "x"
    value: Any = {"env": (("A", text),), "settings": (("chat-template", text),)}.get(field, text)
    if field == "weights" and text[:1] in ("/", "-"):
        value = "x" + text
    given_texts = replace(Texts(weights="/models/x", command="/opt/vllm"), **{field: value})
    outcome = emit(colocated(given_texts), TargetChoice(TARGETS[target]))
    assert outcome.value is not None, outcome.diagnostics
    compare(target, given_texts, outcome.value.artifacts)


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_a_model_is_never_taken_for_a_flag(target):
    found = emit(colocated(Texts(weights="--api-key=x")), TargetChoice(TARGETS[target])).diagnostics
    assert ("DGC603", ("services", "chat", "model", "weights")) in [(d.code, d.path) for d in found]


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_what_no_process_can_be_given_is_refused_at_its_field(target):
    plan = colocated(Texts(env=(("A", "x\x00y"),)))
    found = [d for d in emit(plan, TargetChoice(TARGETS[target])).diagnostics if d.code == "DGC603"]
    assert [d.path for d in found] == [("services", "chat", "engine", "env", "A")]
    assert "NUL" in found[0].message
