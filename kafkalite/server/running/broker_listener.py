"""Warns where clients can send what only brokers may send: the listener between brokers is the only one."""

import ipaddress
import logging

from kafkalite.config.broker import BrokerConfig

LOGGER = logging.getLogger("kafkalite.server")
LOCAL_NAME = "localhost"


def warn_if_shared(config: BrokerConfig) -> None:
    """Log a warning if the listener between brokers is also that of the clients, and accepts other machines.

    Brokers do not authenticate to each other, so every client of that listener can act as the controller.
    """
    (first, *others) = config.listeners
    if others or is_loopback(first.host):
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
