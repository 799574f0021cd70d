"""The levels of the broker's loggers, which DescribeConfigs and IncrementalAlterConfigs call broker loggers (KIP-412).

1. `root` is the logger `kafkalite`, above all loggers of the broker: a program in which the broker runs keeps its own.
2. Levels belong to the process. They are valid at once and until it ends, and are not stored.
3. A package whose modules have loggers has a level, too, also before they are imported.

Names and texts of levels are those of Log4j. Sources: Log4jController.scala, RuntimeLoggerManager.java (Kafka 3.9).
Deviation: Kafka creates no logger for a package.
"""

import logging
from collections.abc import Iterable, Sequence

from kafkalite.cluster.changes import RefusedError
from kafkalite.config.describe_and_alter import Alteration, Operation, Setting, Source
from kafkalite.config.keys import Type
from kafkalite.errors import KafkaErrorCode

LOGGER = logging.getLogger("kafkalite.server")
ROOT, OWN = "root", "kafkalite"
LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
INVALID, WRONG_LEVEL = KafkaErrorCode.INVALID_REQUEST, KafkaErrorCode.INVALID_CONFIG


def describe_loggers(own_id: int, name: str, keys: Iterable[str] | None) -> list[Setting]:
    """Return the effective level of each logger. Raises RefusedError.

    Arguments:
        own_id: of this broker.
        name: of the resource, the id of a broker.
        keys: names of loggers, of which those that exist are returned; None = all.
    """
    if not name:
        raise RefusedError(INVALID, "Broker id must not be empty")
    if (broker_id := number(name, "Broker")) != own_id:
        raise RefusedError(INVALID, f"Unexpected broker id, expected {own_id} but received {broker_id}")
    names = logger_names()
    wanted = names if keys is None else [key for key in keys if key in names]
    source = Source.DYNAMIC_BROKER_LOGGER
    return [Setting(each, level_of(each), source, False, False, Type.UNKNOWN, "", ()) for each in wanted]


def alter_loggers(own_id: int, name: str, alterations: Sequence[Alteration], validate_only: bool) -> None:
    """Set and remove levels: all of them, or none with RefusedError.

    Arguments:
        own_id: of this broker.
        name: of the resource, the id of a broker.
        alterations: the operations in their order.
        validate_only: change nothing.
    """
    check_names(alterations)
    if (broker_id := number(name, "Node")) != own_id:
        raise RefusedError(INVALID, f"Unexpected node id. Expected {own_id}, but received {broker_id}")
    names = logger_names()
    for each in alterations:
        check(each, names)
    if not validate_only:
        for each in alterations:
            apply(each)


def number(name: str, noun: str) -> int:
    """Return the id that is the name of a resource."""
    if not name.removeprefix("-").isdecimal() or not name.isascii():
        raise RefusedError(INVALID, f"{noun} id must be an integer, but it is: {name}")
    return int(name)


def logger_names() -> list[str]:
    """Return the names of the broker's loggers and of the packages above them, `root` first."""
    below = f"{OWN}."
    return [ROOT, *sorted(name for name in logging.root.manager.loggerDict if name.startswith(below))]


def logger_named(name: str) -> logging.Logger:
    return logging.getLogger(OWN if name == ROOT else name)


def level_of(name: str) -> str:
    """Return the effective level of a logger: the least verbose of LEVELS that shows everything that it logs."""
    known = logging.root.manager.loggerDict
    while name not in (ROOT, OWN) and not isinstance(known.get(name), logging.Logger):  # a package
        name = name.rpartition(".")[0]
    level = logger_named(name).getEffectiveLevel()
    return next((text for text, value in reversed(LEVELS.items()) if value <= level), "TRACE")


def check_names(alterations: Sequence[Alteration]) -> None:
    """Reject duplicate names, and a level of null, as for each type of resource."""
    names = [each.name for each in alterations]
    if len(set(names)) < len(names):
        raise RefusedError(INVALID, "Error due to duplicate config keys")
    missing = [each.name for each in alterations if each.value is None and each.operation != Operation.DELETE]
    if missing:
        raise RefusedError(INVALID, f"Null value not supported for : {', '.join(missing)}")


def check(alteration: Alteration, names: Sequence[str]) -> None:
    """Raise RefusedError for a change that is not valid."""
    name, operation, value = alteration
    if operation in (Operation.APPEND, Operation.SUBTRACT):
        refused = f"{Operation(operation).name} operation is not allowed for the BROKER_LOGGER resource"
        raise RefusedError(INVALID, refused)
    if operation not in (Operation.SET, Operation.DELETE):
        refused = f"Unknown operation type {operation} is not allowed for the BROKER_LOGGER resource"
        raise RefusedError(INVALID, refused)
    if name not in names:
        raise RefusedError(WRONG_LEVEL, f"Logger {name} does not exist!")
    if operation == Operation.DELETE and name == ROOT:
        raise RefusedError(INVALID, f"Removing the log level of the {ROOT} logger is not allowed")
    if operation == Operation.SET and value not in LEVELS:
        raise RefusedError(
            WRONG_LEVEL,
            f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}",
        )


def apply(alteration: Alteration) -> None:
    """Set or remove the level of a logger."""
    name, _, value = alteration
    if alteration.operation == Operation.DELETE or value is None:
        logger_named(name).setLevel(logging.NOTSET)
        LOGGER.warning("Unset the log level of %s", name)
    else:
        logger_named(name).setLevel(LEVELS[value])
        LOGGER.warning("Updated the log level of %s to %s", name, value)
