"""Lets the SDK's clients log in to secured brokers; imported where nothing else of `clients` is installed.

A client gets the settings of a login if a bootstrap address is that of a secured broker, and it has no security itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.security import Security, parse_security

from tests.kit.secured.logins import MECHANISM, PASSWORD, PROTOCOL, USER, cafile_of, is_wanted


def add_login(client: ClusterClient) -> None:
    """Give a client its login, if it needs one."""
    cafile = cafile_of([f"{host}:{port}" for host, port in client.settings.bootstrap])
    if cafile is not None and client.settings.security == Security():
        login = {"sasl_mechanism": MECHANISM, "sasl_username": USER, "sasl_password": PASSWORD}
        security = parse_security({"security_protocol": PROTOCOL, "ssl_cafile": cafile, **login})
        client.settings = client.settings._replace(security=security)


def followed(create: Callable[..., None]) -> Callable[..., None]:
    """`__init__` of the SDK's client."""

    @functools.wraps(create)
    def __init__(self: ClusterClient, *given: Any, **named: Any) -> None:
        create(self, *given, **named)
        add_login(self)

    return __init__


if is_wanted():
    ClusterClient.__init__ = followed(ClusterClient.__init__)  # type: ignore[method-assign]
