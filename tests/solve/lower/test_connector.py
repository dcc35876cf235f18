import json
from pathlib import Path

import pytest

from disaggc.perf.models import Models
from disaggc.pipeline import Request, check
from disaggc.solve.api import solve_spec
from disaggc.solve.lower import lower
from disaggc.solve.solution import Solution

PRODUCT = Path(__file__).parents[2] / "examples" / "product.yaml"


def configs(kind: str) -> dict[str, list[dict]]:
    sets = (f"services.chat.engine.connector.type={kind}", "services.chat.constraints.mode=disaggregated")
    resolved = check(Request((PRODUCT,), sets)).resolved
    models = Models.of(resolved).value
    solution = solve_spec(models)
    assert isinstance(solution, Solution)
    found: dict[str, list[dict]] = {}
    for pool in lower(models, solution).services[0].pools:
        for replica in pool.replicas:
            text = next(a.value.value for a in replica.arguments if a.flag == "--kv-transfer-config")
            found.setdefault(pool.role.value, []).append(json.loads(text))
    return found


@pytest.mark.parametrize("kind", ["nixl-push", "mooncake"])
def test_prefill_engines_have_an_identity_where_decode_must_be_told_it(kind):
    found = configs(kind)
    identities = [config["engine_id"] for config in found["prefill"]]
    assert len(set(identities)) == len(identities) > 0
    assert all("engine_id" not in config for config in found["decode"])


@pytest.mark.parametrize("kind", ["nixl", "moriio"])
def test_an_identity_is_left_to_the_engine_elsewhere(kind):
    assert all("engine_id" not in config for role in configs(kind).values() for config in role)


def test_roles_are_said_outright_and_never_both():
    found = configs("nixl")
    assert {config["kv_role"] for config in found["prefill"]} == {"kv_producer"}
    assert {config["kv_role"] for config in found["decode"]} == {"kv_consumer"}
