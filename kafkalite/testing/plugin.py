"""The pytest plugin: a broker for the test run; a topic, a producer, a consumer and a cluster for each test.

1. Every pytest run of every user loads this module, so it imports nothing of the broker before a fixture is used.
2. Each process of pytest-xdist has its own broker on a free port, so parallel tests do not affect each other.
3. The marker `kafkalite` of a test precedes the ini options: `settings` (of the brokers), `brokers` (of the cluster),
   `partitions` and `configs` (of the topic), `producer` and `consumer` (their settings), `tls`, `users`, `mechanism`
   and `acls` (the security of the broker, see `kafkalite.testing.secured`).
4. The fixtures `kafkalite_async_*` run in the event loop of the test, by pytest-asyncio (any mode) or by anyio.
5. A cluster belongs to one test, as tests kill its brokers.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from kafkalite_sdk import Consumer as SdkConsumer
    from kafkalite_sdk import Producer as SdkProducer
    from kafkalite_sdk.blocking import Consumer, Producer

    from kafkalite.config.keys import SettingValue
    from kafkalite.testing.broker_cluster import BrokerCluster
    from kafkalite.testing.thread import BrokerThread

    AsyncConsumer = SdkConsumer[Any, Any]
    AsyncProducer = SdkProducer[Any, Any]

TOPIC_NAME_MAX = 249  # Topic.java, MAX_NAME_LENGTH
MARKER = "kafkalite"
# A test with two consumers, one after the other, must not wait for a heartbeat interval.
WITHOUT_DELAY = {"group.consumer.assignment.interval.ms": "0"}
SECURITY = ("tls", "users", "mechanism", "acls")
MARKER_ARGUMENTS = ("settings", "brokers", "partitions", "configs", "producer", "consumer", *SECURITY)
CLUSTER_BROKERS = 3
_numbers = count(1)
_variants: dict[str, "Variant"] = {}


class Variant(NamedTuple):
    """How the broker of a test differs from that of the session: configs, and arguments of `SecuredBroker`."""

    settings: "Mapping[str, SettingValue]"
    security: Mapping[str, Any]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the ini options."""
    parser.addini("kafkalite_settings", "settings of all brokers, NAME=VALUE on each line", type="linelist")
    parser.addini("kafkalite_partitions", "number of partitions of kafkalite_topic", default="1")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and the async fixtures of the installed libraries."""
    arguments = ", ".join(f"{each}=None" for each in MARKER_ARGUMENTS)
    config.addinivalue_line(
        "markers",
        f"{MARKER}({arguments}): settings of the brokers, their number in a cluster, partitions and configs of the "
        "topic, settings of producer and consumer, TLS, users and ACLs of the broker, for the fixtures kafkalite_*",
    )
    plugins = config.pluginmanager
    libraries = [each for each in ("asyncio", "anyio") if plugins.hasplugin(each)]
    if libraries:
        from kafkalite.testing.async_fixtures import LOOP_SCOPES, new_fixtures

        plugins.register(new_fixtures(pytest.fixture, "anyio", _marked))
    if "asyncio" in libraries:
        import pytest_asyncio

        for scope in LOOP_SCOPES:
            fixture = partial(pytest_asyncio.fixture, loop_scope=scope)
            plugins.register(new_fixtures(fixture, f"asyncio_{scope}", _marked))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give tests whose marker has settings or security a broker of their own; tests with equal ones share it."""
    marked = _marked(metafunc.definition)
    security = {each: marked[each] for each in SECURITY if marked.get(each) not in (None, False)}
    settings = marked.get("settings")
    if (settings is not None or security) and "kafkalite_broker" in metafunc.fixturenames:
        wanted = [f"{key}={value}" for key, value in sorted((settings or {}).items())]
        wanted += [key if value is True else f"{key}={value}" for key, value in security.items()]
        variant = _variants.setdefault(",".join(wanted), Variant(settings or {}, security))
        shown = [*wanted[: len(wanted) - len(security)], *security]  # an id has no password
        metafunc.parametrize("kafkalite_broker", [variant], ids=[",".join(shown)], indirect=True, scope="session")


def _marked(node: pytest.Item | pytest.Collector) -> Mapping[str, Any]:
    """The arguments of the marker of a test; those of the nearest marker precede."""
    merged: dict[str, Any] = {}
    for marker in node.iter_markers(MARKER):
        unknown = sorted(set(marker.kwargs) - set(MARKER_ARGUMENTS))
        if marker.args or unknown:
            given = ", ".join([*map(repr, marker.args), *unknown])
            text = f"pytest.mark.{MARKER} does not accept {given}; it accepts {', '.join(MARKER_ARGUMENTS)}"
            pytest.fail(f"{node.nodeid}: {text}", pytrace=False)
        merged = {**marker.kwargs, **merged}
    return merged


def _ini_settings(config: pytest.Config) -> dict[str, str]:
    """The settings of the ini option, and those of all tests."""
    settings = dict(WITHOUT_DELAY)
    for line in config.getini("kafkalite_settings"):
        name, separator, value = line.partition("=")
        if not separator:
            raise pytest.UsageError(f"kafkalite_settings: {line!r} is no setting, expected NAME=VALUE")
        settings[name.strip()] = value.strip()
    return settings


def _ini_partitions(config: pytest.Config) -> int:
    text = config.getini("kafkalite_partitions")
    if not text.isdecimal() or int(text) < 1:
        raise pytest.UsageError(f"kafkalite_partitions is {text!r}, expected a number above 0")
    return int(text)


@pytest.fixture(scope="session")
def kafkalite_broker_factory(pytestconfig: pytest.Config) -> Iterator[Callable[..., "BrokerThread"]]:
    """A function of settings, as {"num.partitions": 3}, that starts a broker in its own thread, until the session ends.

    The settings precede those of the ini option. With `tls`, `users` or `acls` it returns a
    `kafkalite.testing.secured.SecuredBroker`.
    """
    with ExitStack() as brokers:

        def start(settings: "Mapping[str, SettingValue] | None" = None, **security: Any) -> "BrokerThread":
            merged = {**_ini_settings(pytestconfig), **(settings or {})}
            return brokers.enter_context(_new_broker(Variant(merged, security)))

        yield start


def _new_broker(variant: Variant) -> "BrokerThread":
    """Return a broker that does not run yet; one without security does not import what security needs."""
    from kafkalite.testing.thread import BrokerThread

    if not variant.security:
        return BrokerThread(settings=variant.settings)
    from kafkalite.testing.secured import SecuredBroker

    return SecuredBroker(settings=variant.settings, **variant.security)


@pytest.fixture(scope="session")
def kafkalite_broker(request: pytest.FixtureRequest) -> Iterator["BrokerThread"]:
    """A broker in its own thread, for the whole session; clients connect to its `address` (HOST:PORT).

    With `tls`, `users` or `acls` of the marker it is a `kafkalite.testing.secured.SecuredBroker`:
    `client_settings(user)` returns the settings of a client, and `allow(user, "read", topic="orders")` adds an ACL.
    """
    variant: Variant = getattr(request, "param", Variant({}, {}))
    with _new_broker(Variant({**_ini_settings(request.config), **variant.settings}, variant.security)) as broker:
        yield broker


@pytest.fixture
def kafkalite_cluster_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., "BrokerCluster"]]:
    """A function of `brokers` (their number) and `settings` that starts a cluster, which ends with the test.

    Without arguments, those of the marker apply, and 3 brokers. The settings precede those of the marker.
    """
    from kafkalite.testing.broker_cluster import BrokerCluster

    marked = _marked(request.node)
    with ExitStack() as clusters:

        def start(brokers: int | None = None, settings: "Mapping[str, SettingValue] | None" = None) -> "BrokerCluster":
            number = marked.get("brokers", CLUSTER_BROKERS) if brokers is None else brokers
            merged = {**_ini_settings(request.config), **(marked.get("settings") or {}), **(settings or {})}
            return clusters.enter_context(BrokerCluster(number, merged))

        yield start


@pytest.fixture
def kafkalite_cluster(kafkalite_cluster_factory: Callable[..., "BrokerCluster"]) -> "BrokerCluster":
    """A cluster of this test, with 3 brokers without a marker; clients connect to its `bootstrap_servers`.

    Its methods kill, stop, start, disconnect and reconnect each broker.
    """
    return kafkalite_cluster_factory()


@pytest.fixture
def kafkalite_topic_factory(kafkalite_broker: "BrokerThread", request: pytest.FixtureRequest) -> Callable[..., str]:
    """A function of `partitions` and `configs` that creates a topic for this test, and returns its name.

    Without arguments, those of the marker and of the ini option apply.
    """
    marked = _marked(request.node)

    def create(partitions: int | None = None, configs: "Mapping[str, SettingValue] | None" = None) -> str:
        name = topic_name(request.node.name, next(_numbers))
        wanted = marked.get("partitions") if partitions is None else partitions
        if wanted is not None and wanted < 1:
            raise ValueError(f"partitions is {wanted}, expected at least 1")
        number = wanted or _ini_partitions(request.config)
        kafkalite_broker.create_topic(name, number, marked.get("configs") if configs is None else configs)
        return name

    return create


@pytest.fixture
def kafkalite_topic(kafkalite_topic_factory: Callable[..., str]) -> str:
    """The name of a topic that belongs to this test alone; it has one partition without a marker or ini option."""
    return kafkalite_topic_factory()


@pytest.fixture
def kafkalite_producer_factory(
    kafkalite_broker: "BrokerThread", request: pytest.FixtureRequest
) -> Iterator[Callable[..., "Producer[Any, Any]"]]:
    """A function of settings that starts a `kafkalite_sdk.blocking.Producer`, which is closed after the test.

    The settings precede those of the marker.
    """
    from kafkalite_sdk.blocking import Producer

    marked = {**kafkalite_broker.client_settings(), **(_marked(request.node).get("producer") or {})}
    with ExitStack() as producers:
        yield lambda **settings: producers.enter_context(Producer(kafkalite_broker.address, **{**marked, **settings}))


@pytest.fixture
def kafkalite_producer(kafkalite_producer_factory: Callable[..., "Producer[Any, Any]"]) -> "Producer[Any, Any]":
    """A `kafkalite_sdk.blocking.Producer`. Closing it after the test raises failures that the test has not read."""
    return kafkalite_producer_factory()


@pytest.fixture
def _kafkalite_consumer_options(kafkalite_broker: "BrokerThread", request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings of the consumers of a test: those of the marker, the security, and a group of this test."""
    own = {"group": topic_name(request.node.name, next(_numbers)), "auto_offset_reset": "earliest"}
    return {**kafkalite_broker.client_settings(), **own, **(_marked(request.node).get("consumer") or {})}


@pytest.fixture
def kafkalite_consumer_factory(
    kafkalite_broker: "BrokerThread", _kafkalite_consumer_options: dict[str, Any]
) -> Iterator[Callable[..., "Consumer[Any, Any]"]]:
    """A function of topics and settings that starts a `kafkalite_sdk.blocking.Consumer`; it is closed after the test.

    It reads the topics from their beginning, in a group of this test. The settings precede those of the marker.
    """
    from kafkalite_sdk.blocking import Consumer

    with ExitStack() as consumers:

        def start(*topics: str, **settings: Any) -> "Consumer[Any, Any]":
            consumer: Consumer[Any, Any] = Consumer(
                kafkalite_broker.address, **{**_kafkalite_consumer_options, **settings}
            )
            if topics:
                consumer.subscribe(topics)
            return consumers.enter_context(consumer)

        yield start


@pytest.fixture
def kafkalite_consumer(
    kafkalite_consumer_factory: Callable[..., "Consumer[Any, Any]"], kafkalite_topic: str
) -> "Consumer[Any, Any]":
    """A `kafkalite_sdk.blocking.Consumer` that reads `kafkalite_topic` from the beginning, in a group of this test."""
    return kafkalite_consumer_factory(kafkalite_topic)


def _of_the_loop(request: pytest.FixtureRequest, fixture: str) -> Any:
    """The value of an async fixture, of the library and the loop that run the test. Raises UsageError without them."""
    if "anyio_backend" in request.fixturenames:
        backend = request.getfixturevalue("anyio_backend_name")
        if backend != "asyncio":
            raise pytest.UsageError(f"{request.node.nodeid}: {backend} runs this test; clients of the SDK need asyncio")
        return request.getfixturevalue(f"_kafkalite_anyio_{fixture}")
    if not request.config.pluginmanager.hasplugin("asyncio"):
        raise pytest.UsageError(
            f"{request.node.nodeid}: kafkalite_async_{fixture} needs pytest-asyncio or anyio's marker"
        )
    return request.getfixturevalue(f"_kafkalite_asyncio_{_loop_scope(request)}_{fixture}")


def _loop_scope(request: pytest.FixtureRequest) -> str:
    """The scope of the loop in which pytest-asyncio runs a test."""
    marker = request.node.get_closest_marker("asyncio")
    scope: str | None = None if marker is None else marker.kwargs.get("loop_scope")
    default: str = request.config.getini("asyncio_default_test_loop_scope")
    return scope or default


@pytest.fixture
def kafkalite_async_producer_factory(request: pytest.FixtureRequest) -> "Callable[..., Awaitable[AsyncProducer]]":
    """An async function of settings that starts a `kafkalite_sdk.Producer`, which is closed after the test.

    The settings precede those of the marker.
    """
    start: Callable[..., Awaitable[AsyncProducer]] = _of_the_loop(request, "producer_factory")
    return start


@pytest.fixture
def kafkalite_async_producer(request: pytest.FixtureRequest) -> "AsyncProducer":
    """A `kafkalite_sdk.Producer`. Closing it after the test raises failures that the test has not read."""
    producer: AsyncProducer = _of_the_loop(request, "producer")
    return producer


@pytest.fixture
def kafkalite_async_consumer_factory(request: pytest.FixtureRequest) -> "Callable[..., Awaitable[AsyncConsumer]]":
    """An async function of topics and settings that starts a `kafkalite_sdk.Consumer`; it is closed after the test.

    It reads the topics from their beginning, in a group of this test. The settings precede those of the marker.
    """
    start: Callable[..., Awaitable[AsyncConsumer]] = _of_the_loop(request, "consumer_factory")
    return start


@pytest.fixture
def kafkalite_async_consumer(request: pytest.FixtureRequest) -> "AsyncConsumer":
    """A `kafkalite_sdk.Consumer` that reads `kafkalite_topic` from the beginning, in a group of this test."""
    consumer: AsyncConsumer = _of_the_loop(request, "consumer")
    return consumer


def topic_name(test: str, number: int) -> str:
    """Return a valid topic name for the test `test`; `number` makes it unique within the process."""
    # Dots are left out: Kafka warns that `a.b` and `a_b` collide in metric names.
    legal = re.sub(r"[^a-zA-Z0-9_-]+", "-", test)
    tail = f"-{number}"
    return legal[: TOPIC_NAME_MAX - len(tail)] + tail
