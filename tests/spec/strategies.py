"""Valid specs that use every field of the language at least sometimes: plain data, the files they name, and YAML text.

Valid means: loads and resolves against the shipped catalog without an error, and raises no error of a rule. Sizes stay
those of real clusters.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from disaggc.spec.files import Unreadable
from tests.spec.parts import Situation, bounds, cluster, service, some

Spec = dict[str, Any]

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
FILES = {
    "config.json": json.dumps(CONFIG),
    "trace.csv": "timestamp,input_tokens,output_tokens\n0.0,512,128\n0.7,900,64\n1.1,300,200\n3.0,1500,90\n",
    "trace.jsonl": '{"timestamp": 0, "input_length": 800, "output_length": 40}\n'
    '{"timestamp": 300, "input_length": 1200, "output_length": 100}\n'
    '{"timestamp": 450, "input_length": 700, "output_length": 150}\n',
    "calibration.yaml": "version: 1\nprovenance: {tool: by hand}\nentries: []\n",
}
"""The files that drawn specs name, by name beside the spec."""
SPEC_NAME = "disaggc.yaml"


@st.composite
def _targets(draw: st.DrawFn) -> Spec:
    kubernetes = {
        "namespace": draw(st.sampled_from(["llm", "default"])),
        "kube_version": draw(st.sampled_from(["1.28", "1.30", "1.33"])),
        "accelerator_resource": "example.com/gpu",
        "rdma_resource": "rdma/ib",
        "rdma_count": draw(st.integers(1, 8)),
        "service_account": "engines",
        "model_volume": "weights",
        "monitoring_namespace": "monitoring",
        "priority_class": "gpu-high",
        "inference_pool": draw(st.booleans()),
    }
    systemd = {"ssh_user": "ops", "run_as": "vllm", "directory": "/etc/llm"}
    compose = {"project": "llm", "directory": "/etc/llm"}
    local = draw(st.sampled_from([{"engine": "vllm"}, {"engine": "sim", "time_scale": 10.0}]))
    return {
        "local": some(draw, {**local, "base_port": 21000}, ("engine",)),
        "kubernetes": some(draw, kubernetes, ("rdma_resource",)),
        "systemd": some(draw, systemd),
        "compose": some(draw, compose),
    }


@st.composite
def _scenarios(draw: st.DrawFn, services: Spec) -> Spec:
    out: Spec = {}
    for name in draw(
        st.lists(st.sampled_from(["peak", "night", "long"]), unique=True, min_size=1, max_size=2)
    ):
        service_name = draw(st.sampled_from(sorted(services)))
        classes = services[service_name]["workload"]
        class_name = draw(st.sampled_from(sorted(classes)))
        prefix = f"services.{service_name}.workload.{class_name}"
        out[name] = {f"{prefix}.rate": "3/s"}
        if draw(st.booleans()):
            out[name][f"{prefix}.input_tokens"] = draw(st.sampled_from([700, {"mean": 800, "p99": 2000}]))
    return out


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    """A valid spec as plain data."""
    target = draw(st.sampled_from(["kubernetes", "systemd", "compose"]))
    hardware, situation = draw(cluster(target))
    names = draw(st.lists(st.sampled_from(["chat", "code", "rag-1"]), unique=True, min_size=1, max_size=2))
    services = {name: draw(service(situation, 8000 + number)) for number, name in enumerate(names)}
    spec: Spec = {"version": 1, "cluster": hardware, "services": services, "target": target}
    optional: Spec = {
        "optimize": draw(st.sampled_from(["throughput", "latency", "nodes"] + ["cost"] * situation.priced)),
        "targets": draw(_targets()),
        "state": {"backend": "kubernetes" if target == "kubernetes" and draw(st.booleans()) else "local"},
        "rollout": draw(
            st.sampled_from([{"strategy": "safe", "drain_timeout": "auto"}, {"drain_timeout": "2h"}])
        ),
        "watch": {
            "mode": draw(st.sampled_from(["observe", "propose", "apply"])),
            "interval": draw(st.sampled_from(["30s", "1min"])),
            "cooldown": draw(st.sampled_from(["15min", "1h"])),
            "min_gain": draw(st.sampled_from(["5%", 0.1])),
        },
        "scenarios": draw(_scenarios(services)),
        "calibration": "calibration.yaml",
        "step_times": "model",  # the other value asks for a library that not everyone has installed
    }
    drawn = {**spec, **some(draw, optional, ("targets",) if target == "kubernetes" else ())}
    return copy.deepcopy(drawn)  # whoever changes it must not change what is drawn next


@st.composite
def spec_texts(draw: st.DrawFn) -> str:
    """A valid spec as YAML text, in block or flow style."""
    flow = draw(st.sampled_from([None, True, False]))
    return text_of(draw(specs()), flow=flow)


def text_of(spec: Spec, *, flow: bool | None = False) -> str:
    """YAML of a spec; every text that could be read as something else is quoted."""
    return yaml.safe_dump(spec, default_flow_style=flow, sort_keys=False, width=100)


def write_spec(directory: Path, spec: Spec) -> Path:
    """The spec and the files it names, in a directory."""
    for name, content in FILES.items():
        (directory / name).write_text(content)
    path = directory / SPEC_NAME
    path.write_text(text_of(spec))
    return path


def reader_of(text: str) -> Any:
    """A reader that gives this text as the spec and knows the companion files; touches no disk."""

    def read(path: Path, _limit: int) -> bytes | Unreadable:
        if path.name in FILES:
            return FILES[path.name].encode()
        return text.encode() if path.name == SPEC_NAME else Unreadable("the file does not exist")

    return read


__all__ = [
    "FILES",
    "SPEC_NAME",
    "Situation",
    "bounds",
    "reader_of",
    "spec_texts",
    "specs",
    "text_of",
    "write_spec",
]
