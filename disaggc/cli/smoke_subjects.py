"""From a plan, routing files and `--endpoint` to what the smoke test asks. Reads files, sends nothing."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from disaggc.emit.routing_file import api_key_variable
from disaggc.ir.plan import DeploymentPlan, Role, ServicePlan
from disaggc.rollout.smoke_model import ClientKey, Subject, Target
from disaggc.routing.roles import seats
from disaggc.routing.table import RoutingTable, load_table
from disaggc.routing.text import TableError

OWN_VARIABLE = "DISAGGC_API_KEY"


class EndpointError(Exception):
    """It is not known where something runs; the message says what to give."""


def read_tables(files: Iterable[Path]) -> dict[str, RoutingTable]:
    """Routing tables by service."""
    found: dict[str, RoutingTable] = {}
    for file in files:
        try:
            table = load_table(file.read_bytes())
        except OSError as problem:
            raise EndpointError(f"`{file}` cannot be read: {problem.strerror}") from None
        except TableError as problem:
            raise EndpointError(f"`{file}` is not a routing file: {problem}") from None
        found[table.service] = table
    return found


def read_endpoints(given: Iterable[str]) -> dict[str, str]:
    """`ADDRESS=URL` as plan address -> base URL."""
    found = {}
    for text in given:
        address, equals, url = text.partition("=")
        parts = urlsplit(url)
        if not equals or parts.scheme not in ("http", "https") or not parts.hostname:
            raise EndpointError(f"`{text}` is not ADDRESS=URL, e.g. chat/prefill/0=http://10.0.0.1:20000")
        found[address] = url.rstrip("/")
    return found


def subjects(
    plan: DeploymentPlan,
    *,
    tables: Mapping[str, RoutingTable],
    endpoints: Mapping[str, str],
    environ: Mapping[str, str],
    timeout_s: float,
) -> tuple[Subject, ...]:
    """One for each service of the plan."""
    known = {service.name for service in plan.services}
    for name in sorted(set(tables) - known):
        raise EndpointError(f"the routing file is of service `{name}`, which the plan does not have")
    found = []
    for service in plan.services:
        places = {**_planned(plan, service), **_routed(tables.get(service.name)), **endpoints}
        found.append(
            _subject(service, tables.get(service.name), places, environ=environ, timeout_s=timeout_s)
        )
    unused = set(endpoints) - {engine.address for one in found for engine in one.engines}
    unused -= {
        f"{service.name}/proxy/{i}" for service in plan.services for i in range(len(service.proxy.instances))
    }
    if unused:
        raise EndpointError(
            f"`{min(unused)}` is no address of the plan; see `stack.json`, or `plan --format json`"
        )
    return tuple(found)


def _subject(
    service: ServicePlan,
    table: RoutingTable | None,
    places: Mapping[str, str],
    *,
    environ: Mapping[str, str],
    timeout_s: float,
) -> Subject:
    engines = []
    roles = _roles(service, table)
    for pool in service.pools:
        for replica in pool.replicas:
            url = places.get(replica.address)
            if url is None:
                raise EndpointError(
                    f"the plan does not say where {replica.address} runs; give `--routing FILE`, "
                    f"or `--endpoint {replica.address}=http://HOST:PORT`"
                )
            engines.append(Target(replica.address, url, pool, roles[replica.address]))
    return Subject(
        plan=service,
        engines=tuple(engines),
        proxy=places.get(f"{service.name}/proxy/0"),
        key=_key(service, environ),
        timeout_s=timeout_s,
    )


def _key(service: ServicePlan, environ: Mapping[str, str]) -> ClientKey:
    """The clients' key: from the variable that the spec names, else from its file, else from our own variable."""
    variable, file = api_key_variable(service), service.proxy.api_key_file
    if variable is None and file is not None:
        try:
            return ClientKey(Path(file).read_text(encoding="utf-8").rstrip("\r\n"), f"`{file}`")
        except (OSError, ValueError):
            variable = OWN_VARIABLE
            source = f"the variable {variable} (`{file}` cannot be read here)"
            return ClientKey(environ.get(variable), source)
    variable = variable or OWN_VARIABLE
    return ClientKey(environ.get(variable), f"the variable {variable} (export it)")


def _roles(service: ServicePlan, table: RoutingTable | None) -> dict[str, frozenset[Role]]:
    """What each replica may do. A flexible one may do both, whatever the table lets it do at the moment."""
    both = frozenset({Role.PREFILL, Role.DECODE})
    found = {
        replica.address: both if pool.role is Role.FLEXIBLE else frozenset({pool.role})
        for pool in service.pools
        for replica in pool.replicas
    }
    for seat in () if table is None else seats(table):
        if seat.entry.address not in found:
            raise EndpointError(
                f"{seat.entry.address} stands in the routing file and not in the plan; is it an older plan?"
            )
    return found


def _planned(plan: DeploymentPlan, service: ServicePlan) -> dict[str, str]:
    """Where the plan itself has addresses."""
    found = {}
    for pool in service.pools:
        for replica in pool.replicas:
            host = plan.node(replica.slots[0].node).address
            if host is not None:
                found[replica.address] = _url(host, replica.ports.http)
    for instance in service.proxy.instances[:1]:
        host = plan.node(instance.node).address
        if host is not None:
            found[instance.address] = _url(host, service.proxy.port)
    return found


def _routed(table: RoutingTable | None) -> dict[str, str]:
    if table is None:
        return {}
    entries: Sequence[tuple[str, str, int]] = [
        (entry.address, entry.host, entry.port) for pool in table.pools for entry in pool.replicas
    ]
    found = {address: _url(host, port) for address, host, port in entries}
    listen = table.listen
    if listen.host.strip("[]") not in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        found[f"{table.service}/proxy/0"] = _url(listen.host, listen.port)
    return found


def _url(host: str, port: int) -> str:
    bare = host.strip("[]")
    try:
        shown = f"[{bare}]" if ipaddress.ip_address(bare).version == 6 else bare
    except ValueError:
        shown = bare
    return f"http://{shown}:{port}"
