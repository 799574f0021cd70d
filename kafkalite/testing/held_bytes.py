"""Bytes that are under way in a `MemoryNetwork` longer than others: from a chosen write on."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkalite.testing.memory_network import MemoryNetwork, MemoryTransport


class HeldBytes:
    """Holds back the bytes from one host to another, from a chosen write on; see `MemoryNetwork.hold_next`."""

    def __init__(
        self, network: "MemoryNetwork", hosts: tuple[str, str], contents: bytes, begun: Callable[[], object]
    ) -> None:
        self._network = network
        self._hosts = hosts
        self._contents = contents
        self._begun = begun
        self._half: MemoryTransport | None = None

    def writing(self, half: "MemoryTransport", data: Any) -> None:
        """Begin with this write, if it is the chosen one."""
        hosts = half.get_extra_info("sockname")[0], half.get_extra_info("peername")[0]
        if hosts == self._hosts and self._contents in bytes(data):
            self._half = half
            half.held = True
            self._network.holds.remove(self)
            self._network.loop.call_soon(self._begun)

    def release(self) -> None:
        """Let the bytes arrive in their order; before the chosen write, wait for it no longer."""
        if self._half is None:
            if self in self._network.holds:
                self._network.holds.remove(self)
        else:
            self._half.held = False
            self._half.schedule()
