from hypothesis import given
from hypothesis import strategies as st

from disaggc.ir.plan import Ports, Role, Shape
from disaggc.resolve.owned import EPHEMERAL_PORTS, OWNED_PORTS
from disaggc.solve.lower.ports import replica_ports

CONNECTORS = st.sampled_from(["nixl", "nixl-push", "mooncake", "moriio", None])
DEVICES = 72


@st.composite
def neighbours(draw):
    """Replicas side by side on one node of up to 72 devices, each (first device, shape)."""
    first, found = 0, []
    while first < DEVICES:
        tp = draw(st.sampled_from([1, 2, 4, 8]))
        dp = draw(st.sampled_from([1, 2, 4, 8]))
        if first + tp * dp > DEVICES:
            break
        found.append((first, Shape(tp=tp, dp=dp)))
        first += tp * dp
    return found


def listened(ports: Ports) -> list[int]:
    single = [ports.http, ports.bootstrap, ports.dp_rpc, ports.master]
    found = [port for port in single if port is not None]
    if ports.side_channel is not None:
        found += range(ports.side_channel, ports.side_channel + ports.side_channel_width)
    if ports.notify is not None:
        found += range(ports.notify, ports.notify + ports.side_channel_width)
    return [*found, *range(ports.internal, ports.internal + ports.internal_width)]


@given(neighbours(), CONNECTORS, st.booleans())
def test_no_two_listeners_of_a_node_share_a_port(replicas, connector, multi_node):
    seen: list[int] = []
    for first, shape in replicas:
        ports = replica_ports(first, shape, Role.PREFILL, connector=connector, multi_node=multi_node)
        seen += listened(ports)
    assert len(seen) == len(set(seen))
    assert all(port in OWNED_PORTS and port not in EPHEMERAL_PORTS for port in seen)


def test_a_colocated_replica_listens_on_no_kv_port():
    ports = replica_ports(0, Shape(tp=8), Role.COLOCATED, connector=None, multi_node=False)
    assert (ports.side_channel, ports.bootstrap, ports.notify, ports.dp_rpc, ports.master) == (None,) * 5


def test_only_prefill_runs_a_mooncake_bootstrap_server():
    roles = (Role.PREFILL, Role.DECODE)
    ports = [replica_ports(0, Shape(tp=8), role, connector="mooncake", multi_node=False) for role in roles]
    assert ports[0].bootstrap is not None
    assert ports[1].bootstrap is None


def test_the_side_channel_is_as_wide_as_the_whole_data_parallel_group():
    ports = replica_ports(0, Shape(tp=1, dp=16), Role.DECODE, connector="nixl", multi_node=True)
    assert ports.side_channel_width == 16
