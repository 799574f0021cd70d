"""The tests of frameworks on Kafka: which files of a checkout are run. None of their tests is left out.

Every function copies what the tests need into an empty directory, and returns the arguments of pytest. `address` is
that of the broker. The frameworks themselves are installed (tests/kit/foreign.toml), the checkout has the tests of the
same version.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
AUTO = ["-o", "asyncio_mode=auto"]
LOCAL_ADDRESSES = ("localhost:9092", "127.0.0.1:9092")


def faststream(checkout: Path, directory: Path, address: str) -> list[str]:
    """FastStream's tests that need a Kafka broker, of its client for aiokafka."""
    copy(checkout, directory, "tests", "docs", "pyproject.toml")
    replace_addresses(directory / "tests", address)
    shutil.copy(HERE / "faststream_plugin.py", directory)
    files = [f"tests/{name}/kafka" for name in ("brokers", "opentelemetry", "prometheus")]
    return ["-p", "faststream_plugin", "-m", "kafka and connected", *files]


def arroyo(checkout: Path, directory: Path, address: str) -> list[str]:
    """The tests of sentry-arroyo's backends, and of its consumers in KIP-848 groups; it is on confluent-kafka."""
    copy(checkout, directory, "tests", "pytest.ini")
    replace_addresses(directory / "tests", address)
    return ["tests/backends", "tests/test_kip848_e2e.py"]


def taskiq(checkout: Path, directory: Path, address: str) -> list[str]:
    """All tests of taskiq-aio-kafka; they read the address from TEST_KAFKA_URL."""
    copy(checkout, directory, "tests")
    return ["tests"]


def concurrent(checkout: Path, directory: Path, address: str) -> list[str]:
    """The tests of faststream-concurrent-aiokafka with a broker; they read the address from KAFKA_BOOTSTRAP_SERVERS."""
    copy(checkout, directory, "tests")
    return [*AUTO, "tests/test_integration.py"]


def amgi(checkout: Path, directory: Path, address: str) -> list[str]:
    """All tests of amgi-aiokafka, the Kafka server of AsyncFast; the broker takes the place of their container."""
    package = Path("packages", "amgi-aiokafka", "tests_amgi_aiokafka")
    copy(checkout / package.parent, directory, package.name)
    copy(checkout / "packages" / "test-utils" / "src", directory, "test_utils")
    (directory / "testcontainers").mkdir()
    shutil.copy(HERE / "amgi_container.py", directory / "testcontainers" / "kafka.py")
    return [*AUTO, "-o", "markers=integration: needs a broker", package.name]


FRAMEWORKS: dict[str, Callable[[Path, Path, str], list[str]]] = {
    "faststream": faststream,
    "arroyo": arroyo,
    "taskiq": taskiq,
    "concurrent": concurrent,
    "amgi": amgi,
}
ON_AIOKAFKA = ("faststream", "concurrent", "amgi")
"""taskiq-aio-kafka is on aiokafka 0.10; it passes an argument that aiokafka 0.14 has no longer, nor our module."""


def copy(checkout: Path, directory: Path, *names: str) -> None:
    """Copy files and directories of the checkout."""
    for name in names:
        source = checkout / name
        if source.is_dir():
            shutil.copytree(source, directory / name)
        else:
            shutil.copy(source, directory / name)


def replace_addresses(directory: Path, address: str) -> None:
    """Replace the address that the tests expect a broker at."""
    for file in directory.rglob("*.py"):
        text = replaced = file.read_text()
        for each in LOCAL_ADDRESSES:
            replaced = replaced.replace(each, address)
        if replaced != text:
            file.write_text(replaced)
