"""The rates of new connections of a broker, of its listeners, and of addresses (KIP-612).

1. A connection above the rate of the broker or of its listener is accepted, and the listener accepts the next one after
   the throttle time.
2. A connection above the rate of its address is closed after the throttle time. It is charged to no rate, so that one
   address does not use up the rate of others.
3. The listeners between brokers are exempt from the rate of the broker if clients have another one.
4. A throttle time is one window at most.
5. An address has one limit and one count, however its text is written: in upper case, with zeros, as IPv4 in IPv6, or
   with the interface of a link-local address. Two stored limits of one address are those of one key: the last one
   applies (InetAddress.equals).

Source: ConnectionQuotas in SocketServer.scala.
"""

import ipaddress
from collections.abc import Collection
from typing import NamedTuple

from kafkalite.state.quotas.paced_meter import PacedMeter
from kafkalite.state.quotas.rates import Windows

ADDRESSES_MAX = 20_000


class Admission(NamedTuple):
    """The throttle times of a new connection in ms.

    Attributes:
        listener_ms: until the listener accepts the next connection.
        address_ms: until this connection is closed; 0 = it is served.
    """

    listener_ms: int = 0
    address_ms: int = 0


ADMITTED = Admission()


class ConnectionRates:
    """The rates, and the limits of them.

    Arguments:
        windows: of the rates.
        exempt: the listeners that the rate of the broker does not limit.
    """

    def __init__(self, windows: Windows, exempt: Collection[str] = ()) -> None:
        self._windows = windows
        self._exempt = frozenset(exempt)
        self._broker: PacedMeter | None = None
        self._listeners: dict[str, PacedMeter] = {}
        self._addresses: dict[str, float] = {}
        self._default: float | None = None
        self._meters: dict[str, PacedMeter] = {}

    def __bool__(self) -> bool:
        """Whether there are limits."""
        addresses = self._addresses or self._default is not None
        return bool(self._broker is not None or self._listeners or addresses)

    def limit_broker(self, limit: float | None) -> None:
        """Set the limit of the broker; None = no limit."""
        self._broker = self._changed(self._broker, limit)

    def limit_listener(self, listener: str, limit: float | None) -> None:
        """Set the limit of a listener; None = no limit."""
        meter = self._changed(self._listeners.pop(listener, None), limit)
        if meter is not None:
            self._listeners[listener] = meter

    def limit_address(self, address: str | None, limit: float | None) -> None:
        """Set the limit of an address, or of each one without its own (`address` is None); None = no limit."""
        if address is None:
            self._default = limit
        elif limit is None:
            self._addresses.pop(canonical(address), None)
        else:
            self._addresses[canonical(address)] = limit
        for known, meter in list(self._meters.items()):
            changed = self._addresses.get(known, self._default)
            if changed is None:
                del self._meters[known]
            else:
                meter.set_limit(changed, 0)

    def charge(self, listener: str, address: str, now_ms: int) -> Admission:
        """Charge a new connection.

        Arguments:
            listener: name of the listener.
            address: of the client.
            now_ms: the time.
        """
        charged = [] if self._broker is None or listener in self._exempt else [self._broker]
        if listener in self._listeners:
            charged.append(self._listeners[listener])
        listener_ms = max((meter.record(1, now_ms) for meter in charged), default=0)
        own = self._of(canonical(address)) if self._addresses or self._default is not None else None
        if own is not None:
            address_ms = own.throttle_ms_after(1, now_ms)
            if address_ms:
                for meter in charged:
                    meter.take_back(1, now_ms)
                return Admission(listener_ms, address_ms)
            own.record(1, now_ms)
        return Admission(listener_ms) if listener_ms else ADMITTED

    def _of(self, address: str) -> PacedMeter | None:
        meter = self._meters.get(address)
        if meter is None:
            limit = self._addresses.get(address, self._default)
            if limit is None:
                return None
            if len(self._meters) >= ADDRESSES_MAX:
                del self._meters[next(iter(self._meters))]
            meter = self._meters[address] = self._new(limit)
        return meter

    def _changed(self, meter: PacedMeter | None, limit: float | None) -> PacedMeter | None:
        if limit is None:
            return None
        if meter is None:
            return self._new(limit)
        meter.set_limit(limit, 0)
        return meter

    def _new(self, limit: float) -> PacedMeter:
        return PacedMeter(limit, self._windows, self._windows.size_ms)


def canonical(address: str) -> str:
    """Return the one text of an address; a host name, which Kafka resolves, is unchanged."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    ipv4 = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return str(ipv4 or ip)
