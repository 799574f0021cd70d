"""The arguments of aiokafka's producer as options of the engine's."""

import logging
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from kafkalite_sdk.compat.aiokafka.partitioner import DefaultPartitioner
from kafkalite_sdk.compat.aiokafka.settings import CLIENT_ARGUMENTS, client_options, warn_of
from kafkalite_sdk.producer.producer import Producer
from kafkalite_sdk.producer.reports import FailedRecords

LOGGER = logging.getLogger("kafkalite_sdk.compat.aiokafka")

Partitioner = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
COMPRESSION_TYPES = ("gzip", "snappy", "lz4", "zstd", None)
_missing = object()
_numbers = count(1)


def new_producer(
    *,
    bootstrap_servers: str | list[str],
    client_id: str | None,
    acks: Any,
    enable_idempotence: bool,
    compression_type: str | None,
    partitioner: Partitioner,
    transactional_id: str | None,
    **arguments: Any,
) -> Producer[bytes, bytes]:
    """Return the engine's producer for the arguments of aiokafka's.

    Arguments:
        bootstrap_servers, client_id, acks, enable_idempotence, compression_type, partitioner, transactional_id: as in
            aiokafka.
        arguments: all others.

    Raises: ValueError, TypeError for those that are not valid or not supported.
    """
    warn_of(api_version=arguments["api_version"])
    if transactional_id is not None:
        enable_idempotence = True
        arguments["transactional"] = {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": arguments["transaction_timeout_ms"],
        }
    if compression_type not in COMPRESSION_TYPES:
        raise ValueError(f"Invalid compression type! It is {compression_type!r}, expected one of {COMPRESSION_TYPES}")
    request_timeout_ms, linger_ms = arguments["request_timeout_ms"], arguments["linger_ms"]
    arguments["client_id"] = client_id or f"aiokafka-producer-{next(_numbers)}"
    return Producer(
        bootstrap_servers,
        on_error=_log_failures,
        acks=_acks(acks, idempotent=enable_idempotence),
        enable_idempotence=enable_idempotence,
        max_in_flight=5 if enable_idempotence else 1,
        linger_ms=linger_ms,
        batch_size=arguments["max_batch_size"],
        max_request_size=arguments["max_request_size"],
        delivery_timeout_ms=request_timeout_ms + linger_ms,
        max_block_ms=request_timeout_ms,
        compression_type=compression_type or "none",  # type: ignore[arg-type]
        partitioner=_partitioner(partitioner),
        **arguments.get("transactional", {}),
        **client_options(**{name: arguments[name] for name in CLIENT_ARGUMENTS}),
    )


def _acks(acks: Any, *, idempotent: bool) -> Any:
    if acks is _missing:
        return "all" if idempotent else 1
    if acks not in (0, 1, -1, "all"):
        raise ValueError(f"Invalid ACKS parameter: {acks!r}, expected 0, 1, -1 or 'all'")
    if idempotent and acks not in (-1, "all"):
        raise ValueError(f"acks={acks} not supported if enable_idempotence=True")
    return acks


def _partitioner(partitioner: Partitioner) -> Any:
    """The partitioner of the engine: aiokafka's default one is that of Java."""
    if isinstance(partitioner, DefaultPartitioner):
        return "murmur2"

    def choose(key: bytes | None, value: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
        return partitioner(key, list(partitions), list(available))

    return choose


def _log_failures(failed: FailedRecords) -> None:
    LOGGER.error("records of a producer have failed, and no task awaits them: %s", failed)
