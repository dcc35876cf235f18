"""On target local all nodes are one machine: no two processes want one port, and `base_port` moves them all."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from disaggc.ir.canonical import read_saved_plan
from disaggc.rules.invariants.dgc453_ports_overlap import port_ranges
from disaggc.rules.targets import dgc622_local_ports
from disaggc.solve.lower import ports

SPEC = """
version: 1
cluster:
  fabric: {{type: infiniband, speed_per_nic: 200Gbit}}
  nodes:
    a: {{count: 2, accelerator: {{type: h100-sxm, per_node: 8}}, nics: {{per_node: 8}}}}
    b: {{hosts: {{x: 10.0.0.7}}, accelerator: {{type: h100-sxm, per_node: 4}}, nics: {{per_node: 4}}}}
services:
  chat:
    model: {{id: meta-llama/Llama-3.1-8B, weights: /models/llama}}
    workload: {{w: {{input_tokens: 1024, output_tokens: 256, concurrency: 200}}}}
    engine: {{vllm: 0.33.0}}
    constraints: {{mode: disaggregated, prefill: {{tp: [2]}}, decode: {{tp: [2]}}}}
targets: {{local: {{engine: sim, base_port: {base}}}}}
target: local
"""


@pytest.mark.parametrize("base", [20000, 10000])
def test_no_two_processes_of_the_machine_want_one_port(base, tmp_path):
    (tmp_path / "disaggc.yaml").write_text(SPEC.format(base=base))
    start = "import sys; from disaggc.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", start, "plan", "disaggc.yaml", "--refresh=false", "--out", "plan.json", "-q"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    plan = read_saved_plan((tmp_path / "plan.json").read_text())
    assert {node.address for node in plan.nodes} == {"127.0.0.1"}
    assert json.loads((tmp_path / "plan.json").read_text())["target"] == "local"
    replicas = [replica for pool in plan.services[0].pools for replica in pool.replicas]
    assert len({replica.slots[0].node for replica in replicas}) > 1, "one node would prove nothing"
    seen = [port for replica in replicas for _, those in port_ranges(replica.ports) for port in those]
    proxy = plan.services[0].proxy
    seen += [proxy.port, proxy.admin_port]
    assert len(seen) == len(set(seen))
    assert min(replica.ports.http for replica in replicas) >= base
    assert proxy.admin_port == base - 1000


def test_the_rule_counts_ports_as_the_planner_does():
    assert dgc622_local_ports.PER_DEVICE == ports.PER_DEVICE
    assert dgc622_local_ports.ADMIN_BELOW == ports.FIRST - ports.PROXY_ADMIN
