"""Lets the clients of the libraries log in to secured brokers; imported before a module of tests or of the kit.

Their classes get the settings of a login if a bootstrap address is that of a secured broker, and the test has set no
security itself.
"""

from __future__ import annotations

import functools
import ssl
import warnings
from collections.abc import Callable
from typing import Any

import aiokafka.client
import confluent_kafka
import confluent_kafka.admin
from kafkalite_sdk.client.cluster_client import ClusterClient
from kafkalite_sdk.client.security import Security, parse_security

from tests.kit.secured.logins import MECHANISM, PASSWORD, PROTOCOL, USER, cafile_of, is_wanted

with warnings.catch_warnings():
    # It loads its schemas with importlib.resources.read_text, deprecated from Python 3.11 to 3.12.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka


def librdkafka(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a client of librdkafka, with a login if it needs one."""
    cafile = cafile_of(settings.get("bootstrap.servers", ""))
    if cafile is None or "security.protocol" in settings:
        return settings
    return {
        **settings,
        "security.protocol": PROTOCOL,
        "ssl.ca.location": cafile,
        "sasl.mechanism": MECHANISM,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }


def of_kafka_python(settings: dict[str, Any]) -> dict[str, Any]:
    """The same for kafka-python and aiokafka."""
    cafile = cafile_of(settings.get("bootstrap_servers", ""))
    if cafile is None or settings.get("security_protocol", "PLAINTEXT") != "PLAINTEXT":
        return settings
    return {
        **settings,
        "security_protocol": PROTOCOL,
        "ssl_context": ssl.create_default_context(cafile=cafile),
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }


def of_sdk(client: ClusterClient) -> None:
    """The same for a client of the SDK, which has its settings."""
    cafile = cafile_of([f"{host}:{port}" for host, port in client.settings.bootstrap])
    if cafile is not None and client.settings.security == Security():
        login = {"sasl_mechanism": MECHANISM, "sasl_username": USER, "sasl_password": PASSWORD}
        security = parse_security({"security_protocol": PROTOCOL, "ssl_cafile": cafile, **login})
        client.settings = client.settings._replace(security=security)


def given_to_librdkafka(create: Callable[..., None]) -> Callable[..., None]:
    """`__init__` of a class of librdkafka, whose settings are one dict or keywords."""

    @functools.wraps(create)
    def __init__(self: object, *given: Any, **named: Any) -> None:
        changed = [librdkafka(each) if isinstance(each, dict) else each for each in given]
        create(self, *changed, **(named if given else librdkafka(named)))

    return __init__


def changed(create: Callable[..., None]) -> Callable[..., None]:
    """`__init__` of a class of aiokafka or kafka-python."""

    @functools.wraps(create)
    def __init__(self: object, *given: Any, **named: Any) -> None:
        create(self, *given, **of_kafka_python(named))

    return __init__


def followed(create: Callable[..., None]) -> Callable[..., None]:
    """`__init__` of the SDK's client."""

    @functools.wraps(create)
    def __init__(self: ClusterClient, *given: Any, **named: Any) -> None:
        create(self, *given, **named)
        of_sdk(self)

    return __init__


def install() -> None:
    """Change the classes of this process."""
    for name in ("Producer", "Consumer"):  # in C: methods cannot be replaced
        cls = getattr(confluent_kafka, name)
        setattr(confluent_kafka, name, type(name, (cls,), {"__init__": given_to_librdkafka(cls.__init__)}))
    admin = confluent_kafka.admin.AdminClient
    admin.__init__ = given_to_librdkafka(admin.__init__)
    for cls in (aiokafka.client.AIOKafkaClient, kafka.KafkaProducer, kafka.KafkaConsumer, kafka.KafkaAdminClient):
        cls.__init__ = changed(cls.__init__)
    ClusterClient.__init__ = followed(ClusterClient.__init__)  # type: ignore[method-assign]


if is_wanted():
    install()
