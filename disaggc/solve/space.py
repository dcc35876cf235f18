"""How many nodes the counts take, as rows of the program: totals where they are exact, patterns of a node elsewhere.

Knows no node by name and no objective.
"""

from __future__ import annotations

from disaggc.solve.problem import GroupSpace, Option, PlacementProblem, is_chain, maximal_patterns
from disaggc.solve.program import Program, Tag


def node_counts(program: Program, problem: PlacementProblem) -> dict[str, list[int]]:
    """Node counts per group: one for each service that takes whole nodes, one for all that share."""
    shares: list[list[int]] = [[s] for s, service in enumerate(problem.services) if service.exclusive]
    shares.append([s for s, service in enumerate(problem.services) if not service.exclusive])
    nodes: dict[str, list[int]] = {group.name: [] for group in problem.groups}
    owned: dict[int, list[int]] = {}
    for share in shares:
        for group in problem.groups:
            members = [
                (program.counts[s][i], option)
                for s in share
                for i, option in enumerate(problem.services[s].options)
                if option.group == group.name
            ]
            if members:
                variable = _pack(program, group, members)
                nodes[group.name].append(variable)
                owned.setdefault(share[0], []).append(variable)
    for group in problem.groups:
        program.at_most([(n, 1) for n in nodes[group.name]], group.nodes, Tag("", "nodes"))
    for s, service in enumerate(problem.services):
        whole = [(n, 1) for n in owned.get(s, [])]
        if service.max_nodes is not None:
            program.at_most(whole, service.max_nodes, Tag(service.name, "max-nodes"))
        if service.min_nodes is not None:
            program.at_least(whole, service.min_nodes, Tag(service.name, "min-nodes"))
    return nodes


def _pack(program: Program, group: GroupSpace, members: list[tuple[int, Option]]) -> int:
    """Nodes of one group that these replicas fill; exact for every mix of sizes."""
    nodes = program.variable(group.nodes)
    sizes = tuple(sorted({option.accelerators for _, option in members}))
    if is_chain(sizes, group.per_node):
        taken = [(count, -_footprint(option, group)) for count, option in members]
        program.at_least([(nodes, group.per_node), *taken], 0)
        return nodes
    inside = tuple(size for size in sizes if size <= group.per_node)
    patterns = [(program.variable(group.nodes), p) for p in maximal_patterns(inside, group.per_node)]
    for position, size in enumerate(inside):
        room = [(variable, pattern[position]) for variable, pattern in patterns if pattern[position]]
        program.at_least([*room, *((c, -1) for c, o in members if o.accelerators == size)], 0)
    whole = [
        (c, _footprint(o, group) // group.per_node) for c, o in members if o.accelerators > group.per_node
    ]
    program.equal([(nodes, -1), *((variable, 1) for variable, _ in patterns), *whole], 0)
    return nodes


def _footprint(option: Option, group: GroupSpace) -> int:
    """Accelerators a replica denies to others: whole nodes beyond one node."""
    if option.accelerators <= group.per_node:
        return option.accelerators
    return -(-option.accelerators // group.per_node) * group.per_node
