"""What target local writes, read by supervisord's own code: the words that were meant, whatever a spec holds."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from supervisor.options import ServerOptions

from disaggc.diagnostics.model import has_errors
from disaggc.emit.api import TargetChoice, emit
from disaggc.emit.engine_part import engine_parts, host_text
from disaggc.ir.plan import DeploymentPlan, FromSecret
from disaggc.ir.stack import load_stack
from disaggc.routing.table import load_table
from disaggc.spec.model import LocalTarget
from tests.effort import examples
from tests.emit.emitted import codes, files
from tests.emit.hostile import HOSTILE, texts
from tests.emit.plans import PLANS, Texts, colocated, five_nodes, multi_node

SIM = LocalTarget(engine="sim", time_scale=10.0)


def here(plan: DeploymentPlan) -> DeploymentPlan:
    nodes = tuple(node.model_copy(update={"address": "127.0.0.1"}) for node in plan.nodes)
    services = tuple(
        service.model_copy(
            update={"proxy": service.proxy.model_copy(update={"instances": service.proxy.instances[:1]})}
        )
        for service in plan.services
    )
    return plan.model_copy(update={"nodes": nodes, "services": services})


def commands(text: str, folder: Path) -> dict[str, list[str]]:
    """Words of every program, as supervisord would start them."""
    (folder / "supervisord.conf").write_text(text, encoding="utf-8")
    (folder / "run").mkdir(exist_ok=True)
    options = ServerOptions()
    options.realize(["-c", str(folder / "supervisord.conf")])
    return {
        process.name: shlex.split(process.command)
        for group in options.process_group_configs
        for process in group.process_configs
    }


def engines(read: dict[str, list[str]]) -> list[list[str]]:
    return sorted(words for words in read.values() if "serve" in words)


def meant(plan: DeploymentPlan) -> list[list[str]]:
    """Command lines of the engines by the plan, with their variables in front."""
    found = []
    for part in engine_parts(plan):
        text = host_text(part)
        given = {v.name: text(v.value) for v in part.replica.env if not isinstance(v.value, FromSecret)}
        devices = part.devices()
        if devices is not None:
            given.setdefault(*devices)
        variables = [f"{name}={value}" for name, value in sorted(given.items())]
        found.append(["env", *variables, part.service.engine.command or "vllm", *part.words(text)])
    return found


@pytest.mark.parametrize("name", ["five-nodes", "one-box", "colocated", "flexible", "count-only"])
def test_supervisord_reads_every_program_as_the_plan_means_it(name, tmp_path):
    plan = here(PLANS[name]())
    made = files(plan, LocalTarget())
    read = commands(made["supervisord.conf"].text, tmp_path)
    assert engines(read) == sorted(meant(plan))
    stack = load_stack(made["stack.json"].text)
    assert {program.name for program in stack.programs} == set(read)
    assert {path for path in made if path.endswith("routing.json")} == {
        f"{service.name}/routing.json" for service in plan.services
    }


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_breaks_out_of_its_command(text, tmp_path):
    plan = here(
        colocated(Texts(settings=(("chat-template", text),), env=(("A", text),), weights=f"/m/{text}"))
    )
    outcome = emit(plan, TargetChoice(LocalTarget()))
    if outcome.value is None:
        assert {d.code for d in outcome.diagnostics if d.severity == "error"} <= {"DGC603", "DGC602"}
        return
    (conf,) = [a.text for a in outcome.value.artifacts if a.path == "supervisord.conf"]
    read = commands(conf, tmp_path)
    assert engines(read) == sorted(meant(plan))


@settings(max_examples=examples(60))
@given(texts())
def test_random_texts_come_back_or_are_refused(tmp_path_factory, text):
    plan = here(colocated(Texts(settings=(("chat-template", text),), env=(("A", text),))))
    outcome = emit(plan, TargetChoice(LocalTarget()))
    if outcome.value is None:
        assert has_errors(outcome.diagnostics)
        return
    (conf,) = [a.text for a in outcome.value.artifacts if a.path == "supervisord.conf"]
    read = commands(conf, tmp_path_factory.mktemp("conf"))
    assert engines(read) == sorted(meant(plan))


def test_secrets_are_named_and_not_written():
    plan = here(colocated(Texts(secrets=(("HF_TOKEN", "hf"),), api_key="CHAT_KEY")))
    made = files(plan, LocalTarget())
    programs = load_stack(made["stack.json"].text).programs
    assert {name for program in programs for name in program.secrets} == {"HF_TOKEN", "CHAT_KEY"}
    assert "HF_TOKEN" not in made["supervisord.conf"].text


def test_doubles_take_the_engines_command_lines_and_their_own_flags(tmp_path):
    plan = here(five_nodes())
    outcome = emit(plan, TargetChoice(SIM, {pool.address: "{}\n" for pool in plan.services[0].pools}))
    assert outcome.value is not None, outcome.diagnostics
    made = {artifact.path: artifact.text for artifact in outcome.value.artifacts}
    for program, words in commands(made["supervisord.conf"], tmp_path).items():
        if "proxy" not in program:
            at = words.index("sim-engine")
            assert words[at - 1 : at + 2] == ["disaggc", "sim-engine", "serve"]
            assert words[words.index("--time-scale") + 1] == "10"
            assert words[words.index("--timing") + 1] in made
    table = load_table(made["chat/routing.json"])
    assert table.lease_s == pytest.approx(plan.services[0].connector.lease_s / 10)
    assert table.timeouts.handoff_s < table.lease_s
    assert table.listen.host == "127.0.0.1"


def test_what_one_machine_cannot_do_is_said():
    assert "DGC602" in codes(here(multi_node()), LocalTarget())
    assert "DGC602" not in codes(here(multi_node()), LocalTarget(engine="sim"))
    assert "DGC602" in codes(here(five_nodes()), LocalTarget(time_scale=2.0))
    assert "DGC602" in codes(five_nodes(), LocalTarget())


def test_proxies_become_workers_of_one():
    plan = here(five_nodes())
    proxy = plan.services[0].proxy
    two = proxy.model_copy(update={"instances": (*proxy.instances, *proxy.instances)})
    twice = plan.model_copy(update={"services": (plan.services[0].model_copy(update={"proxy": two}),)})
    outcome = emit(twice, TargetChoice(LocalTarget()))
    assert outcome.value is not None, outcome.diagnostics
    made = {artifact.path: artifact.text for artifact in outcome.value.artifacts}
    (line,) = [line for line in made["supervisord.conf"].splitlines() if "routing.json" in line]
    assert line.endswith("--workers 2")
    assert load_table(made["chat/routing.json"]).proxies == 1
