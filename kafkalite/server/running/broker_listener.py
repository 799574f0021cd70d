"""The listener between brokers: its address, and a warning where clients can send what only brokers may send."""

import ipaddress
import logging
from collections.abc import Iterable

from kafkalite.config.broker import BrokerConfig
from kafkalite.model import Endpoint

LOGGER = logging.getLogger("kafkalite.server")
LOCAL_NAME = "localhost"


def warn_if_shared(config: BrokerConfig) -> None:
    """Log a warning if the listener between brokers is also that of the clients, and accepts other machines.

    Every client of that listener can act as the controller, unless the listener has SASL.
    """
    (first, *others) = config.listeners
    if others or is_loopback(first.host) or first.security_protocol.startswith("SASL_"):
        return
    LOGGER.warning(
        "%s: clients use the listener between brokers, and each of them can delete and redirect partitions: configure "
        "another listener for brokers (listeners, inter.broker.listener.name), which clients cannot reach", first
    )  # fmt: skip


def is_loopback(host: str) -> bool:
    """Whether an address of a listener accepts connections of this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == LOCAL_NAME


def endpoint_for_brokers(endpoints: Iterable[Endpoint], config: BrokerConfig) -> Endpoint | None:
    """Return the endpoint of a broker at which other brokers reach it, None if it has none.

    Arguments:
        endpoints: all addresses of that broker.
        config: of this broker: inter.broker.listener.name, without it the first with security.inter.broker.protocol.
    """
    wanted, protocol = config.inter_broker_listener_name, config.security_inter_broker_protocol
    for endpoint in endpoints:
        if endpoint.listener == wanted if wanted is not None else endpoint.security_protocol == protocol:
            return endpoint
    return None
