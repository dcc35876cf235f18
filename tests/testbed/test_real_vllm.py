"""A real vLLM, prefill and decode apart, compiled from a spec, run by target local, asked through the proxy.

One stack has prefill, decode and one whole server of the same model; a second one has two flexible replicas. The
figures are printed: run with -s to see them.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from disaggc.rollout.smoke_metrics import Metrics, read_metrics
from tests import compiled
from tests.testbed.held_legs import Gate, gate
from tests.testbed.vllm_cpu import VERSION, tiny_model, vllm_venv

pytestmark = [pytest.mark.testbed, pytest.mark.xdist_group("real-vllm")]
START_S = 900
ANSWER_S = 240
GENERATED = 24
BLOCK = 32
LENGTHS = (20, 33, 64, 100, 129, 200, 300, 410)
SPEC = """
version: 1
cluster:
  fabric: {{type: tcp, speed_per_nic: 10Gbit, allow_tcp: true}}
  nodes:
    box: {{count: {nodes}, accelerator: {{type: cpu, per_node: 2, memory: 4GiB}}, nics: {{per_node: 1}}}}
services:
{services}
targets: {{local: {{engine: vllm, base_port: {base}}}}}
target: local
"""
SERVICE = """
  {name}:
    model: {{id: tests/tiny, weights: {model}, config: {model}/config.json, served_name: tiny}}
    workload: {{some: {{input_tokens: 200, output_tokens: 24, rate: 0.2/s}}}}
    engine:
      vllm: {version}
      command: {command}
      settings: {{max-model-len: 512, block-size: 32, enforce-eager: true}}
      env: {{VLLM_CPU_OMP_THREADS_BIND: nobind, OMP_NUM_THREADS: "1", HF_HUB_OFFLINE: "1"}}
    constraints: {constraints}
    proxy: {{port: {port}}}
"""
APART = "{mode: disaggregated, prefill: {replicas: 1}, decode: {replicas: 1}}"
WHOLE = "{mode: colocated, colocated: {replicas: 1}}"
FLEXIBLE = "{mode: flexible, prefill: {replicas: 1}, decode: {replicas: 1}}"


def disaggc(*words: str | Path, codes: tuple[int, ...] = (0,), timeout: float = 120) -> str:
    start = "import sys; from disaggc.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", start, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode in codes, f"disaggc {words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def until(condition: Callable[[], bool], what: str, seconds: float = 120) -> float:
    """Seconds it took."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + seconds, what
        time.sleep(0.05)
    return time.monotonic() - begun


class Stack:
    """A folder with a spec, its plan and its build, up."""

    def __init__(self, folder: Path, services: dict[str, str], venv: Path, *, model: Path, base: int) -> None:
        self.folder, self.base = folder, base
        self.canaries: list[dict[str, object]] = []
        self.ports = {name: free_port() for name in services}
        text = "".join(
            SERVICE.format(
                name=name,
                model=model,
                version=VERSION,
                command=venv / "bin" / "vllm",
                constraints=constraints,
                port=self.ports[name],
            )
            for name, constraints in services.items()
        )
        folder.mkdir()
        spec = folder / "spec.yaml"
        spec.write_text(SPEC.format(services=text, base=base, nodes=len(services)))
        disaggc("plan", spec, "--refresh=false", "--out", folder / "plan.json")
        disaggc("build", spec, "--out", folder / "out")

    def up(self) -> None:
        begun = time.monotonic()
        found = disaggc(
            "local",
            "up",
            self.folder / "out",
            "--timeout",
            str(START_S),
            "--format",
            "json",
            timeout=START_S + 60,
        )
        programs = json.loads(found)["programs"]
        self.urls = {one["address"]: one["url"] for one in programs}
        for one in programs:
            if one["kind"] == "proxy":
                compiled.check(one["pid"], is_compiled=compiled.ASKED in os.environ)
        print(
            f"\n{len(self.urls)} processes ready after {time.monotonic() - begun:.0f} s: {', '.join(self.urls)}"
        )

    def quiet(self, service: str) -> list[dict[str, object]]:
        """What the first canaries said; then no more of them, so that the engines count only what the tests ask."""
        admin = self.admin(service)

        def said() -> list[dict[str, object]]:
            found: list[dict[str, object]] = json.loads(asked(f"{admin}/admin/canaries"))["pairs"]
            return found

        until(lambda: any(one["result"] == "ok" for one in said()), "no canary came through", 120)
        table = json.loads(asked(f"{admin}/admin/routing"))
        table["generation"] += 1
        table["health"]["canary_s"] = None
        asked(f"{admin}/admin/routing", table, method="PUT")
        return said()

    def down(self) -> None:
        disaggc("local", "down", self.folder / "out", "--now", codes=(0, 1), timeout=300)

    def admin(self, service: str) -> str:
        port = json.loads((self.folder / "out" / service / "routing.json").read_text())["listen"][
            "admin_port"
        ]
        return f"http://127.0.0.1:{port}"


def free_port() -> int:
    """Below those that connections take."""
    for port in random.SystemRandom().sample(range(15000, 19000), 50):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no free port from 15000 to 19000")


def asked(
    url: str, body: dict[str, object] | None = None, *, method: str = "POST", timeout: float = ANSWER_S
) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    kind = {"content-type": "application/json"}
    request = urllib.request.Request(url, data, kind, method=method if data else "GET")  # noqa: S310 - loopback
    with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310
        found: bytes = answer.read()
        return found


def completion(ids: list[int], **more: object) -> dict[str, object]:
    return {
        "model": "tiny", "prompt": ids, "max_tokens": GENERATED, "temperature": 0, "seed": 0, "ignore_eos": True,
        "return_token_ids": True, **more,
    }  # fmt: skip


def tokens(url: str, ids: list[int]) -> list[int]:
    found: list[int] = json.loads(asked(f"{url}/v1/completions", completion(ids)))["choices"][0]["token_ids"]
    return found


def streamed(url: str, ids: list[int]) -> list[int]:
    found: list[int] = []
    for line in asked(f"{url}/v1/completions", completion(ids, stream=True)).decode().splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                found += choice.get("token_ids") or []
    return found


def metrics(url: str) -> Metrics:
    return read_metrics(asked(f"{url}/metrics").decode())


def prompts(seed: int) -> dict[int, list[int]]:
    dice = random.Random(seed)  # noqa: S311 - the same prompts every time
    return {length: [0, *(dice.randrange(3, 250) for _ in range(length - 1))] for length in LENGTHS}


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> tuple[Path, Path]:
    venv = vllm_venv()
    return venv, tiny_model(venv, tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def stack(real, tmp_path_factory) -> Iterator[Stack]:
    venv, model = real
    made = Stack(
        tmp_path_factory.mktemp("pd") / "s", {"pd": APART, "whole": WHOLE}, venv, model=model, base=21000
    )
    try:
        made.up()
        made.canaries = made.quiet("pd")
        yield made
    finally:
        made.down()


@pytest.fixture(scope="module")
def flexible(real, tmp_path_factory) -> Iterator[Stack]:
    venv, model = real
    made = Stack(tmp_path_factory.mktemp("flex") / "s", {"flex": FLEXIBLE}, venv, model=model, base=27000)
    try:
        made.up()
        made.canaries = made.quiet("flex")
        yield made
    finally:
        made.down()


def test_prefill_and_decode_give_the_tokens_of_one_server_and_move_the_kv(stack: Stack):
    proxy, decode = stack.urls["pd/proxy/0"], stack.urls["pd/decode/0"]
    whole = stack.urls["whole/colocated/0"]
    before = metrics(decode)
    remote, differing = 0, []
    for length, ids in prompts(1).items():
        wanted = tokens(whole, ids)
        begun = time.monotonic()
        found = streamed(proxy, ids) if length % 2 else tokens(proxy, ids)
        remote += length if length >= BLOCK else 0
        if found != wanted:
            differing.append((length, wanted, found))
        print(
            f"{length:4} tokens, {'streamed' if length % 2 else 'whole   '}: equal={found == wanted}, {time.monotonic() - begun:.2f} s"
        )
    after = metrics(decode)
    gained = {name: value - before.totals.get(name, 0) for name, value in after.totals.items()}
    hits = gained["vllm:external_prefix_cache_hits_total"]
    moved = gained["vllm:nixl_bytes_transferred_sum"]
    local = gained["vllm:prompt_tokens_by_source_total:local_compute"]
    print(
        f"{len(LENGTHS)} prompts; {hits:.0f} tokens from prefill, {local:.0f} computed by decode, {moved:.0f} bytes in "
        f"{gained['vllm:nixl_bytes_transferred_count']:.0f} transfers, {gained['vllm:nixl_xfer_time_seconds_sum']:.3f} s"
    )
    assert not differing
    assert hits == remote, "decode computed a prompt that prefill should have"
    assert local == sum(length for length in LENGTHS if length < BLOCK)
    assert moved >= remote * 512, "2 layers x 2 KV heads x 32 x 2 (K and V) x 2 bytes"
    assert gained["vllm:nixl_num_failed_transfers_total"] == 0


def test_foreign_kv_would_be_noticed(stack: Stack):
    """The control: decode given another prompt's KV answers that prompt, so equal tokens do prove a right transfer."""
    prefill, decode = stack.urls["pd/prefill/0"], stack.urls["pd/decode/0"]
    mine, other = prompts(2)[129], prompts(3)[129]
    other[-1] = mine[-1]
    ask = {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
    }
    body = completion(
        mine, kv_transfer_params={**ask, "remote_host": None, "remote_port": None}, max_tokens=1
    )
    params = json.loads(asked(f"{prefill}/v1/completions", body))["kv_transfer_params"]
    answer = json.loads(asked(f"{decode}/v1/completions", completion(other, kv_transfer_params=params)))
    assert answer["choices"][0]["token_ids"] == tokens(prefill, mine)
    assert answer["choices"][0]["token_ids"] != tokens(prefill, other)


def reach_decode_at(stack: Stack, port: int) -> None:
    """The proxy reaches decode at this port from now on."""
    admin = stack.admin("pd")
    table = json.loads(asked(f"{admin}/admin/routing"))
    table["generation"] += 1
    (decode,) = [pool for pool in table["pools"] if pool["role"] == "decode"]
    decode["replicas"][0]["port"] = port
    asked(f"{admin}/admin/routing", table, method="PUT")


@contextmanager
def gate_before_decode(stack: Stack) -> Iterator[Gate]:
    """The proxy reaches decode through a gate while the context is open, and by itself again whatever happened."""
    port = int(stack.urls["pd/decode/0"].rpartition(":")[2])
    with gate(port, holds=b'"tiny"') as between:
        reach_decode_at(stack, between.port)
        try:
            yield between
        finally:
            between.closed = False
            reach_decode_at(stack, port)


def released(stack: Stack) -> float:
    text = asked(f"{stack.admin('pd')}/metrics").decode()
    return read_metrics(text).totals["disaggc_proxy_kv_releases_total"]


def test_a_client_that_hangs_up_between_the_legs_leaves_no_block_at_prefill(stack: Stack):
    """Prefill has answered, decode has not been asked: what prefill keeps must not wait for its lease."""
    proxy, prefill, decode = (stack.urls[f"pd/{name}/0"] for name in ("proxy", "prefill", "decode"))
    table = json.loads((stack.folder / "out" / "pd" / "routing.json").read_text())
    ids = prompts(4)[410]
    body = json.dumps(completion(ids, stream=True)).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    def used() -> float:
        return metrics(prefill)["kv_cache_usage_perc"]

    with gate_before_decode(stack) as between:
        before, computed, freed = used(), metrics(decode)["prompt_tokens_total"], released(stack)
        between.closed = True
        client = socket.create_connection(("127.0.0.1", int(proxy.rpartition(":")[2])))
        client.sendall(head + body)
        until(lambda: between.held == 1, "the second leg never came")
        kept = used() - before
        client.close()
        until(lambda: between.gone == 1, "the proxy goes on for a client that is gone", 5)
        took = until(lambda: used() <= before, "prefill still holds the KV", table["lease_s"])
        print(
            f"prefill kept {kept * 100:.3f} % of its KV between the legs and had freed it {took:.2f} s after the client "
            f"hung up; the lease is {table['lease_s']:.0f} s"
        )
        assert kept > 0, "nothing was kept, so nothing was shown"
        assert took < table["lease_s"] / 4
        until(lambda: released(stack) > freed, "the release is not counted", 5)
        assert released(stack) == freed + 1
        assert metrics(decode)["prompt_tokens_total"] == computed, "decode was asked after all"
    assert tokens(proxy, ids) == tokens(prefill, ids)


def test_canaries_find_the_pair_good(stack: Stack):
    """Their KV moves and the tokens are prefill's own; a pair of sound engines must never be set apart."""
    print(stack.canaries)
    assert [(one["result"], one["apart"]) for one in stack.canaries] == [("ok", False)]


def test_smoke_finds_nothing_wrong(stack: Stack):
    found = json.loads(
        disaggc(
            "smoke",
            stack.folder / "plan.json",
            "--timeout",
            "240",
            "--format",
            "json",
            timeout=900,
            codes=(0, 6),
        )
    )
    for one in found["findings"]:
        print(f"{one['state']:4} {one['check']:14} {one['subject']}: {one['sentence']}")
    assert [one for one in found["findings"] if one["state"] == "fail"] == []
    passed = {one["check"] for one in found["findings"] if one["state"] == "pass"}
    assert passed >= {"reachable", "kv-blocks", "kv-moves", "parity", "cancel", "remote-prefill", "hang-up"}


@pytest.mark.parametrize(
    ("pinned", "setting", "code", "severity"),
    [
        (VERSION, "compilation-config: {no-such-key: 1}", "DGC240", "error"),
        ("0.33.0", "seed: 1", "DGC241", "warning"),
    ],
)
def test_its_parser_judges_the_command_lines_of_a_spec(real, tmp_path, pinned, setting, code, severity):
    venv, model = real
    service = SERVICE.format(
        name="pd", model=model, version=pinned, command=venv / "bin" / "vllm", constraints=APART, port=18302
    ).replace("enforce-eager: true", f"enforce-eager: true, {setting}")
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(services=service, base=21000, nodes=1))
    text = disaggc("validate", spec, "--engine-parser", "--format", "json", codes=(0, 1), timeout=600)
    found = [one for one in json.loads(text)["diagnostics"] if one["code"].startswith("DGC24")]
    print(found)
    assert {(one["code"], one["severity"]) for one in found} == {(code, severity)}
    wanted = "no-such-key" if code == "DGC240" else "vllm: 0.33.0"
    assert {spec.read_text().splitlines()[one["line"] - 1].count(wanted) for one in found} == {1}


def test_a_flexible_replica_prefills_and_then_decodes_without_a_restart(flexible: Stack):
    proxy, admin = flexible.urls["flex/proxy/0"], flexible.admin("flex")
    first, second = flexible.urls["flex/flexible/0"], flexible.urls["flex/flexible/1"]
    state = json.loads(disaggc("local", "status", flexible.folder / "out", "--format", "json"))
    pids = {one["name"]: one["pid"] for one in state["programs"]}
    for turn, (prefill, decode) in enumerate(((first, second), (second, first))):
        if turn:
            table = json.loads(asked(f"{admin}/admin/routing"))
            table = table.get("table", table)
            table["generation"] += 1
            table["pools"][0]["replicas"].reverse()
            asked(f"{admin}/admin/routing", table, method="PUT")
        before = metrics(decode), metrics(prefill)
        for length, ids in prompts(10 + turn).items():
            if length >= BLOCK:
                assert tokens(proxy, ids) == tokens(prefill, ids), f"turn {turn}, {length} tokens"
        hits = (
            metrics(decode)["external_prefix_cache_hits_total"]
            - before[0]["external_prefix_cache_hits_total"]
        )
        idle = (
            metrics(prefill)["external_prefix_cache_hits_total"]
            - before[1]["external_prefix_cache_hits_total"]
        )
        print(f"turn {turn}: {hits:.0f} tokens of KV went from {prefill} to {decode}")
        assert hits == sum(length for length in LENGTHS if length >= BLOCK)
        assert idle == 0
    state = json.loads(disaggc("local", "status", flexible.folder / "out", "--format", "json"))
    assert pids == {one["name"]: one["pid"] for one in state["programs"]}
