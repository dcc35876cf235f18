"""Network namespaces for engines, so that a cable can really be pulled: packets vanish, nobody is told.

One bridge for a stack, one namespace and one veth pair for each engine. Needs root and `ip`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field

from tests.bench.fault_left import network_of
from tests.ports import own_block

NOBODY = "02:00:00:00:00:01"


def unavailable() -> str | None:
    """Why there can be no namespaces here; None when there can."""
    if shutil.which("ip") is None:
        return "no `ip` (iproute2) on this machine"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"{network_of(own_block())}probe"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"`ip netns add` fails: {tried.stderr.strip()}"
    _ip("netns", "del", name)
    return None


def _ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)


@dataclass
class Network:
    """A bridge with engines behind cables. number: distinguishes the networks of one process.

    The names say whose they are: `fault_left` removes those of a run that was killed.
    """

    number: int
    hosts: dict[str, str] = field(default_factory=dict)
    """Address of each engine."""

    @property
    def _tag(self) -> str:
        return f"{network_of(own_block())}{self.number}"

    def build(self, names: tuple[str, ...]) -> None:
        """The bridge, and a namespace with an address for each engine."""
        third = self._free()
        _ip("link", "add", self._tag, "type", "bridge")
        _ip("addr", "add", f"10.213.{third}.1/24", "dev", self._tag)
        _ip("link", "set", self._tag, "up")
        for last, name in enumerate(names, 2):
            space, cable = self.space(name), f"{self._tag}{name}"
            _ip("netns", "add", space)
            _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", cable, "master", self._tag, "up")
            self.hosts[name] = f"10.213.{third}.{last}"
            _ip("-n", space, "addr", "add", f"{self.hosts[name]}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")

    def _free(self) -> int:
        """A /24 that no other network of this machine has."""
        said = subprocess.run(["ip", "-o", "-4", "addr"], capture_output=True, text=True, check=True).stdout
        first = own_block() * 16 + self.number
        return next(n % 250 for n in range(first, first + 250) if f" 10.213.{n % 250}.1/" not in said)

    def space(self, name: str) -> str:
        """Name of an engine's namespace."""
        return f"{self._tag}-{name}"

    def inside(self, name: str) -> list[str]:
        """What a command begins with to run in an engine's namespace."""
        return ["ip", "netns", "exec", self.space(name)]

    def cut(self, name: str) -> None:
        """Pull the cable."""
        _ip("link", "set", f"{self._tag}{name}", "down")

    def part(self, one: str, other: str) -> None:
        """Cut the link between two: each sends the other's packets to an address that no machine has."""
        for here, there in ((one, other), (other, one)):
            where = ("to", self.hosts[there], "dev", "eth0")
            _ip("-n", self.space(here), "neigh", "replace", *where, "lladdr", NOBODY, "nud", "permanent")

    def mend(self, name: str) -> None:
        """Put the cable back, and the links to the others."""
        _ip("link", "set", f"{self._tag}{name}", "up")
        for host in self.hosts.values():
            # an entry that was learned rather than set is learned again
            _ip("-n", self.space(name), "neigh", "del", "to", host, "dev", "eth0", check=False)

    def remove(self) -> None:
        """Everything goes."""
        for name in self.hosts:
            _ip("netns", "del", self.space(name), check=False)
            _ip("link", "del", f"{self._tag}{name}", check=False)
        _ip("link", "del", self._tag, check=False)
