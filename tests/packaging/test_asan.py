"""The fuzz tests run on the build with AddressSanitizer, and a planted overflow proves that it is loaded."""

import pytest

from tests.packaging import asan

pytestmark = [pytest.mark.fuzz, pytest.mark.xdist_group("asan"), pytest.mark.timeout(1100)]
SHARE = 10  # the sanitizer is slow: it gets one tenth of the bad inputs
NOT_FOR_IT = (
    "leak_nothing",  # they repeat errors and count memory, which the sanitizer keeps from being used again
    "test_sasl_fuzz",  # messages and texts that Python and OpenSSL parse, which are not instrumented
    "damaged_acls",
    "damaged_keys_and_certificates",
)
CLIENT_TESTS = (  # extensions of the client that the fuzz tests do not reach
    "tests/unit/net/test_client_core.py",  # client_core
    "tests/unit/sdk/test_accumulator.py",  # accumulator, deliveries, partitioners
    "tests/unit/sdk/test_columns.py",  # arrow_rows, column_batch
    "tests/unit/sdk/test_sender.py",  # sending
    "tests/story/sdk/test_blocking_producer.py",  # shared_sends
    "tests/story/sdk/test_producer_columns.py",  # column_sends
)


@pytest.fixture(scope="module", autouse=True)
def sanitizer_build() -> None:
    asan.build()


def test_a_planted_overflow_is_caught() -> None:
    done = asan.run("-c", "import planted_overflow; print(planted_overflow.read_past_the_end(24))")
    assert done.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in done.stdout
    assert "planted_overflow" in done.stdout


def test_the_extensions_are_those_of_the_sanitizer() -> None:
    code = "import kafkalite._speedups.net.framing as m; print(m.__file__)"
    done = asan.run("-c", code)
    assert done.stdout.startswith(str(asan.BUILD)), done.stdout


def test_the_fuzz_tests_pass_on_it(fuzz_inputs: int) -> None:
    options = ["-q", "-p", "no:cacheprovider", "--fuzz-inputs", str(fuzz_inputs // SHARE)]
    options += ["-k", f"not ({' or '.join(NOT_FOR_IT)})"]
    done = asan.run("-m", "pytest", *options, "tests/fuzz", timeout_s=1000)
    assert done.returncode == 0, done.stdout[-20_000:]
    assert " passed" in done.stdout


def test_the_tests_of_the_clients_extensions_pass_on_it() -> None:
    done = asan.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *CLIENT_TESTS)
    assert done.returncode == 0, done.stdout[-20_000:]
    assert " passed" in done.stdout
