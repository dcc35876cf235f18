"""What the nodes of a group are called, and which texts can be an address. Resolves no names."""

from __future__ import annotations

import re

from disaggc.spec.cluster import NodeGroup

_IPV4 = re.compile(r"((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)")
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?")


def node_names(group_name: str, group: NodeGroup) -> tuple[str, ...]:
    """The hosts as named, or `<group>-0`, `<group>-1`, ... where the spec gives only a count."""
    if group.hosts is not None:
        return tuple(group.hosts)
    return tuple(f"{group_name}-{number}" for number in range(group.count or 0))


def is_address(text: str) -> bool:
    """An IPv4 or IPv6 address, or a host name whose last label is not a number."""
    if _IPV4.fullmatch(text):
        return True
    if ":" in text:
        from ipaddress import AddressValueError, IPv6Address  # noqa: PLC0415 - few specs have one; the import costs 3 ms

        try:
            IPv6Address(text)
        except AddressValueError:
            return False
        return True
    labels = text.removesuffix(".").split(".")
    return all(_LABEL.fullmatch(label) for label in labels) and not labels[-1].isdigit()
