"""aiokafka's functions for futures, tasks and offsets."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from kafkalite.model import TopicPartition
from kafkalite_sdk.compat.aiokafka.structs import OffsetAndMetadata

T = TypeVar("T")


def create_task(coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run a coroutine as a task of the running loop."""
    return asyncio.get_running_loop().create_task(coro)


def get_running_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop. Raises RuntimeError: there is none, or it is closed."""
    loop = asyncio.get_event_loop()
    if not loop.is_running():
        raise RuntimeError("The object should be created within an async function or provide loop directly.")
    return loop


def create_future(loop: asyncio.AbstractEventLoop | None = None) -> "asyncio.Future[Any]":
    """Return a new future; `loop` None = of the running loop."""
    return (loop or asyncio.get_running_loop()).create_future()


def commit_structure_validate(
    offsets: Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Validate offsets to commit.

    Arguments:
        offsets: by partition the offset, or offset and metadata.

    Raises: ValueError, TypeError for another structure.
    """
    if not offsets or not isinstance(offsets, Mapping):
        raise ValueError(f"offsets are {offsets!r}, expected a dict of TopicPartition to an offset")
    return {_partition(each): _offset(offset) for each, offset in offsets.items()}


def _partition(each: object) -> TopicPartition:
    if not isinstance(each, TopicPartition):
        raise TypeError(f"Key should be TopicPartition instance, it is {each!r}")
    return each


def _offset(value: object) -> OffsetAndMetadata:
    if isinstance(value, int):
        return OffsetAndMetadata(value, "")
    if not isinstance(value, tuple) or len(value) != 2 or not isinstance(value[0], int):
        raise ValueError(f"{value!r} is neither an offset nor a pair of offset and metadata")
    if not isinstance(value[1], str):
        raise TypeError(f"Metadata should be a string, it is {value[1]!r}")
    return OffsetAndMetadata(*value)
