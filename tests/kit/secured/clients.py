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

from tests.kit.secured import sdk_client  # noqa: F401 - it changes the SDK's client
from tests.kit.secured.logins import MECHANISM, PASSWORD, PROTOCOL, USER, cafile_of, is_wanted, librdkafka_login

with warnings.catch_warnings():
    # It loads its schemas with importlib.resources.read_text, deprecated from Python 3.11 to 3.12.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka


def librdkafka(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a client of librdkafka, with a login if it needs one."""
    if "security.protocol" in settings:
        return settings
    return {**settings, **librdkafka_login(settings.get("bootstrap.servers", ""))}


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


def install() -> None:
    """Change the classes of this process."""
    for name in ("Producer", "Consumer"):  # in C: methods cannot be replaced
        cls = getattr(confluent_kafka, name)
        setattr(confluent_kafka, name, type(name, (cls,), {"__init__": given_to_librdkafka(cls.__init__)}))
    admin = confluent_kafka.admin.AdminClient
    admin.__init__ = given_to_librdkafka(admin.__init__)
    for cls in (aiokafka.client.AIOKafkaClient, kafka.KafkaProducer, kafka.KafkaConsumer, kafka.KafkaAdminClient):
        cls.__init__ = changed(cls.__init__)


if is_wanted():
    install()
