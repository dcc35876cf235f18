from disaggc.emit.engine_part import engine_parts
from disaggc.emit.numa import Near, near
from disaggc.emit.reading.units import Unit
from disaggc.ir.plan import DeploymentPlan, NumaDomain
from tests.emit.plans import five_nodes, one_box
from tests.emit.test_compose import engines as composed
from tests.emit.test_systemd import engines, one

TWO = (NumaDomain(devices=(0, 1, 2, 3), cpus="0-47"), NumaDomain(devices=(4, 5, 6, 7), cpus="48-95"))
FOUR = tuple(NumaDomain(devices=(2 * i, 2 * i + 1), cpus=f"{24 * i}-{24 * i + 23}") for i in range(4))


def with_domains(plan: DeploymentPlan, domains: tuple[NumaDomain, ...]) -> DeploymentPlan:
    nodes = tuple(node.model_copy(update={"numa": domains}) for node in plan.nodes)
    return plan.model_copy(update={"nodes": nodes})


def expected(domains: tuple[NumaDomain, ...], devices: tuple[int, ...]) -> tuple[list[str], int | None]:
    touched = [i for i, domain in enumerate(domains) if set(domain.devices) & set(devices)]
    return [domains[i].cpus for i in touched], touched[0] if len(touched) == 1 else None


def test_engines_keep_to_the_processors_near_their_accelerators():
    plan = with_domains(one_box(), FOUR)
    for part in engine_parts(plan):
        cpus, domain = expected(FOUR, part.slot.devices)
        assert near(part) == (None if len(cpus) == len(FOUR) else Near(",".join(cpus), domain))
    assert any(near(part) is not None for part in engine_parts(plan))


def test_units_say_affinity_and_policy():
    found = engines(with_domains(one_box(), TWO)).values()
    said = {(one(u, "CPUAffinity"), one(u, "NUMAPolicy"), one(u, "NUMAMask")) for u in found if near_one(u)}
    assert said <= {("0-47", "preferred", "0"), ("48-95", "preferred", "1")}
    assert said


def near_one(unit: Unit) -> bool:
    return bool(unit.raw("Service", "CPUAffinity"))


def test_compose_confines_to_the_same_processors():
    sets = {name: engine.get("cpuset") for name, engine in composed(with_domains(one_box(), TWO)).items()}
    assert set(sets.values()) <= {"0-47", "48-95", None}
    assert any(value is not None for value in sets.values())


def test_an_engine_that_spans_the_node_is_left_free():
    assert all(near(part) is None for part in engine_parts(with_domains(five_nodes(), TWO)))
    assert not any(near_one(unit) for unit in engines(with_domains(five_nodes(), TWO)).values())


def test_nothing_is_said_where_nothing_is_known():
    assert all(near(part) is None for part in engine_parts(one_box()))
