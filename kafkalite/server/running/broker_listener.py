"""The listener between brokers: its address, the connections to it, and a warning where clients can send what only
brokers may send.
"""

import ipaddress
import logging
from collections.abc import Callable, Iterable

from kafkalite.config.broker import BrokerConfig
from kafkalite.config.listeners import PLAINTEXT
from kafkalite.model import Endpoint
from kafkalite.net.peer_dial import PeerDial
from kafkalite.server.process.listeners import Listeners
from kafkalite.server.process.resources import BrokerResources

LOGGER = logging.getLogger("kafkalite.server")
LOCAL_NAME = "localhost"
SASL = "SASL_"


def warn_if_shared(config: BrokerConfig) -> None:
    """Log a warning if the listener between brokers is also that of the clients, and accepts other machines.

    Every client of that listener can act as the controller, unless the listener has SASL.
    """
    (first, *others) = config.listeners
    if others or is_loopback(first.host) or first.security_protocol.startswith(SASL):
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


def peer_dial(resources: BrokerResources, listening: Listeners, config: Callable[[], BrokerConfig]) -> PeerDial:
    """Return how this broker connects to the others.

    Arguments:
        resources: of this broker.
        listening: has the TLS contexts.
        config: returns the present configuration, which has the credentials.
    """
    dial, listener = listening.secure_dial(resources.ports.dial), config().listener_between_brokers
    (protocol,) = (each.security_protocol for each in config().listeners if each.listener == listener)
    if protocol == PLAINTEXT:
        return PeerDial(dial)
    from kafkalite.server.authentication.broker_login import BrokerLogin, RejectedLogins  # for clusters with security

    if not protocol.startswith(SASL):
        return PeerDial(dial, rejected=RejectedLogins(resources.log, listener, None))
    login = BrokerLogin(lambda: config().broker_credentials())
    return PeerDial(dial, login, RejectedLogins(resources.log, listener, login.name))
