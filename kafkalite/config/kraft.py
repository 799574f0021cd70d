"""Handles KRaft keys in a configuration file of Kafka 4: one process that is broker and controller is a single broker.

Such a file starts here without a change. The listeners of the controller are not served, as one broker needs no
external coordination; a quorum of several processes is refused, as this broker would not have their topics.
"""

from collections.abc import Mapping, Sequence

from kafkalite.config.keys import ConfigError, Value

QUORUMS = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")


def check_quorum(static: Mapping[str, str], values: Mapping[str, Value]) -> None:
    """Raise ConfigError, with the lines to remove, if the quorum has any process but this one.

    Arguments:
        static: texts of the file, the environment and the command line.
        values: the values of all keys.
    """
    roles = entries(values["process.roles"])
    if roles and "broker" not in roles:
        raise quorum_error(static, "process.roles", "process.roles lacks broker: a controller alone serves no clients")
    for key in QUORUMS:
        controllers = entries(values[key])
        if len(controllers) > 1:
            raise quorum_error(static, key, f"{key} names {len(controllers)} controllers, this version runs one broker")
        if controllers and "controller" not in roles:
            reason = f"{key} is {controllers[0]}, and process.roles does not make this process the controller"
            raise quorum_error(static, key, reason)
        if controllers and not is_own(controllers[0], values):
            raise quorum_error(
                static, key, f"{key} is {controllers[0]}, which is not a controller listener of this process"
            )


def entries(value: Value) -> tuple[str, ...]:
    """Return the entries of a list, none of an unset one."""
    return tuple(filter(None, value)) if isinstance(value, tuple) else ()


def is_own(controller: str, values: Mapping[str, Value]) -> bool:
    """Return whether HOST:PORT or ID@HOST:PORT has the port of a controller listener and the id of this process."""
    node, at, address = controller.rpartition("@")
    if at and node != str(values["node.id"]):
        return False
    port = address.rpartition(":")[2]
    names = controller_listeners(values)
    own = [entry for entry in entries(values["listeners"]) if listener_name(entry) in names]
    return any(entry.rpartition(":")[2] == port for entry in own)


def controller_listeners(values: Mapping[str, Value]) -> frozenset[str]:
    """Return the names of the listeners that a KRaft controller would serve."""
    names = values["controller.listener.names"]
    return split_names(names if isinstance(names, str) else "")


def split_names(names: str) -> frozenset[str]:
    """Return the names of a comma-separated text, in upper case."""
    return frozenset(name.strip().upper() for name in names.split(",") if name.strip())


def controller_entries(static: Mapping[str, str]) -> tuple[str, ...]:
    """Return the entries of `listeners` that belong to the controller, from the texts of a configuration.

    `serve --listen` replaces the listeners of the broker; these identify the quorum as this process.
    """
    names = split_names(static.get("controller.listener.names", ""))
    entries = (entry.strip() for entry in static.get("listeners", "").split(","))
    return tuple(entry for entry in entries if listener_name(entry) in names)


def listener_name(entry: str) -> str:
    """Return the name in `NAME://HOST:PORT`."""
    return entry.partition("://")[0].strip().upper()


def of_brokers(entries: Sequence[str], values: Mapping[str, Value]) -> tuple[str, ...]:
    """Return the entries of `listeners` or `advertised.listeners` that do not belong to the controller."""
    names = controller_listeners(values)
    return tuple(entry for entry in entries if listener_name(entry) not in names)


def quorum_error(static: Mapping[str, str], key: str, reason: str) -> ConfigError:
    """Return the error that names the lines to remove."""
    lines = [f"{name}={static[name]}" for name in ("process.roles", *QUORUMS) if name in static]
    return ConfigError(key, f"{reason}; to start a single broker, drop the lines: {'  '.join(lines)}")
