"""The compatibility module has every public name and argument of aiokafka, or an error that names what is missing."""

from __future__ import annotations

import inspect
import pkgutil
import subprocess
import sys
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import aiokafka
import aiokafka.admin
import aiokafka.errors
import pytest
from kafkalite_sdk.compat.aiokafka import installation

from kafkalite.errors import KafkaError, error_class

OURS = installation.PACKAGE
DOCUMENT = Path(__file__).parents[4] / "docs" / "aiokafka.md"
PUBLIC_MODULES = ("", ".abc", ".admin", ".errors", ".helpers", ".structs", ".partitioner", ".consumer", ".producer")
CLASSES = ("AIOKafkaProducer", "AIOKafkaConsumer", "admin.AIOKafkaAdminClient", "ConsumerRebalanceListener")


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_public_names_exist(module: str) -> None:
    theirs, ours = import_module(f"aiokafka{module}"), import_module(f"{OURS}{module}")
    for name in theirs.__all__ if hasattr(theirs, "__all__") else ():
        assert getattr(ours, name) is not None, name


@pytest.mark.parametrize("name", CLASSES)
def test_methods_and_arguments_are_those_of_aiokafka(name: str) -> None:
    theirs, ours = (attrgetter(name)(import_module(package)) for package in ("aiokafka", OURS))
    for method, function in inspect.getmembers(theirs, inspect.isfunction):
        if method.startswith("_") and method not in ("__init__", "__aenter__", "__aexit__", "__aiter__", "__anext__"):
            continue
        found = getattr(ours, method)
        assert list(inspect.signature(found).parameters) == list(inspect.signature(function).parameters), method
        assert inspect.iscoroutinefunction(found) == inspect.iscoroutinefunction(function), method


@pytest.mark.parametrize("name", CLASSES[:3])
def test_defaults_are_those_of_aiokafka(name: str) -> None:
    theirs, ours = (attrgetter(name)(import_module(package)) for package in ("aiokafka", OURS))
    defaults = inspect.signature(ours).parameters
    for argument, parameter in inspect.signature(theirs).parameters.items():
        if isinstance(parameter.default, str | int | None):
            assert defaults[argument].default == parameter.default, argument


def test_every_module_is_present_or_in_the_table_of_differences() -> None:
    present = {f"aiokafka.{name}" for name in installation.MODULES}
    modules = {each.name for each in pkgutil.walk_packages(aiokafka.__path__, "aiokafka.")}
    assert present <= modules
    text = DOCUMENT.read_text()
    for name in sorted(modules - present):
        package = ".".join(name.split(".")[:2])
        assert f"`{name}`" in text or f"`{package}`" in text, name


def test_error_classes_of_codes_and_their_names() -> None:
    ours = import_module(f"{OURS}.errors")
    for code, theirs in aiokafka.errors.kafka_errors.items():
        found = ours.for_code(code)
        assert getattr(ours, theirs.__name__) is not None
        if code > 0:
            assert found is error_class(code) and issubclass(found, ours.KafkaError)
    assert ours.KafkaError is KafkaError
    assert ours.for_code(12345).__name__ == "UnknownServerError"


@pytest.mark.parametrize("statement", ["from aiokafka import Nonsense", "import aiokafka.protocol.admin"])
def test_a_missing_name_is_reported_with_the_document(statement: str) -> None:
    text = f"from kafkalite_sdk.compat.aiokafka import install; install()\n{statement}"
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    name = "Nonsense" if "Nonsense" in statement else "aiokafka.protocol"
    assert ran.returncode and name in ran.stderr.splitlines()[-1], ran.stderr


def test_install_replaces_modules_and_version() -> None:
    text = (
        "from kafkalite_sdk.compat.aiokafka import install; install(); install()\n"
        "import aiokafka, aiokafka.consumer.consumer, importlib.metadata, importlib.util\n"
        "from aiokafka.producer.producer import _missing\n"
        "from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor\n"
        "print(aiokafka.__name__, aiokafka.__version__, importlib.metadata.version('aiokafka'),"
        " importlib.util.find_spec('aiokafka') is not None)"
    )
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [OURS, "0.14.0", "0.14.0", "True"]


def test_install_after_an_import_of_aiokafka_is_rejected() -> None:
    with pytest.raises(ImportError, match="imported already"):
        installation.install()


async def test_transactions_without_a_transactional_id_are_an_illegal_operation() -> None:
    """As in aiokafka."""
    module = import_module(OURS)
    producer = module.AIOKafkaProducer(bootstrap_servers="localhost:9092")
    illegal = import_module(f"{OURS}.errors").IllegalOperation
    with pytest.raises(illegal, match="transactional_id"):
        async with producer.transaction():
            raise AssertionError("the block of a transaction ran")
    for name in ("begin_transaction", "commit_transaction", "abort_transaction"):
        with pytest.raises(illegal, match="transactional_id"):
            await getattr(producer, name)()
    with pytest.raises(illegal, match="transactional_id"):
        await producer.send_offsets_to_transaction({}, "group")


def test_subclass_of_a_builtin_assignor_changes_its_result() -> None:
    assignors = import_module(f"{OURS}.coordinator.assignors.range")
    protocol = import_module(f"{OURS}.coordinator.protocol")
    cluster = import_module(f"{OURS}.cluster").ClusterMetadata({"t": 3})

    class Reversed(assignors.RangePartitionAssignor):  # type: ignore[misc, name-defined]
        name = "reversed"

    members = {each: protocol.ConsumerProtocolMemberMetadata(0, ["t"], b"") for each in "ab"}
    found = Reversed.assign(cluster, members)
    assert {each: found[each].partitions() for each in found} == {"a": [("t", 0), ("t", 1)], "b": [("t", 2)]}
    with pytest.raises(AttributeError, match=r"ClusterMetadata\.request_update"):
        cluster.request_update()


async def test_assignors_that_are_not_supported_are_named() -> None:
    sticky = import_module(f"{OURS}.coordinator.assignors.sticky.sticky_assignor").StickyPartitionAssignor
    base = import_module(f"{OURS}.coordinator.assignors.abstract").AbstractPartitionAssignor
    for assignor, text in (
        (type("Stickier", (sticky,), {}), "a subclass of StickyPartitionAssignor"),
        (type("Nameless", (base,), {}), "set `name`"),
        (object, "pass a subclass of AbstractPartitionAssignor"),
    ):
        with pytest.raises(ValueError, match=text):
            import_module(OURS).AIOKafkaConsumer("t", group_id="g", partition_assignment_strategy=[assignor])
