"""Runs a broker in a process of its own: `kafkalite serve`.

1. Standard output has one line, `kafkalite ready on HOST:PORT`, once the broker accepts connections; the log goes to
   standard error.
2. An error that prevents the start is one line with exit code 2; one that ends a broker that was ready, with exit code
   1: a service manager starts it again. With --log-json the line is a record of the log.
3. The first SIGTERM, SIGINT or SIGHUP shuts the broker down cleanly, with exit code 0; a later one exits immediately.
   SIGHUP has no effect under `nohup`. Signals within `REPEATED_S` of the first one are ignored: a wrapper forwards a
   signal that the terminal has already sent to the whole process group.
"""

import asyncio
import errno
import ipaddress
import logging
import os
import platform
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterable
from typing import NoReturn

import click
import uvloop

from kafkalite._speedups.allocator import give_back, keep_freed
from kafkalite._version import VERSION
from kafkalite.cli.failure import Failure, fail
from kafkalite.cli.gc_tuning import GcTuning
from kafkalite.cli.standard_streams import ignore_at_exit
from kafkalite.clock import Outcome
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.files import StaticConfig, load
from kafkalite.config.keys import ConfigError, check_directory
from kafkalite.config.kraft import controller_entries
from kafkalite.gc_pause import PAUSE
from kafkalite.server.broker import Broker, StartError
from kafkalite.server.process.logging_setup import LEVELS, set_up_logging
from kafkalite.server.process.sd_notify import Notifier, ServiceManagerError, inherited_sockets
from kafkalite.server.running.running_broker import RunningBroker
from kafkalite.storage.checkpoints import META_PROPERTIES

LOGGER = logging.getLogger("kafkalite.serve")
DEFAULT_LISTENER = "PLAINTEXT://localhost:9092"
DEFAULT_DATA = "./data"
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
REPEATED_S = 0.5  # repeated signals are ignored for this time
LOCAL_NAME = "localhost"
UNPRIVILEGED = 1024  # the first port that does not need root, by default
KEPT_BYTES = 8 << 20  # of freed memory, in each thread's heap: the buffers of some batches
FREE_BYTES_MAX = 2 * KEPT_BYTES  # of freed memory in all heaps: more is left by a burst of large requests
GIVE_BACK_S = 20.0

Inherited = list[tuple[str, socket.socket]]


class Serve(click.Command):
    """The command, which answers to an option that other servers have."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for each in args:
            if each == "--port" or each.startswith("--port="):
                ctx.fail("No such option '--port': the port is part of --listen, as in --listen localhost:9093")
        return super().parse_args(ctx, args)


@click.command(
    cls=Serve,
    epilog="""\b
Examples:
  kafkalite serve
  kafkalite serve --listen 127.0.0.1:0 --data orders-data
  kafkalite serve --config server.properties --set num.partitions=6 --set log.retention.hours=24
  KAFKALITE_NUM_PARTITIONS=6 kafkalite serve --log-json 2> broker.log

The command line overrides the environment (KAFKALITE_ and the key in upper case, with _ for .), which overrides the
file, which overrides Kafka's defaults.""",
)
@click.option(
    "-c",
    "--config",
    "file",
    metavar="FILE",
    help="server.properties, or TOML if the name ends with .toml.",
)
@click.option(
    "-l",
    "--listen",
    metavar="HOST:PORT",
    help="Address to listen on; no host (:9092): all addresses, port 0: a free port.  [default: localhost:9092]",
)
@click.option("-d", "--data", metavar="DIR", help="Log directory.  [default: ./data]")
@click.option(
    "-s",
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Broker config, named as in Kafka; may be repeated.",
)
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="Log level.")
@click.option("--log-json", is_flag=True, help="Log JSON, one object per line.")
def command(
    file: str | None, listen: str | None, data: str | None, settings: tuple[str, ...], log_level: str, log_json: bool
) -> None:
    """Run a broker until Ctrl-C or SIGTERM."""
    set_up_logging(log_level, as_json=log_json)
    keep_freed(KEPT_BYTES, KEPT_BYTES)
    raise_open_file_limit()
    try:
        notifier, inherited = Notifier.from_environment(), inherited_sockets()
        config = static_config(file, listen, data, settings).broker_config()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(config, notifier, inherited))
    except (ConfigError, ServiceManagerError, StartError) as error:
        fail_logged(Failure(str(error)), as_json=log_json)
    except Failure as failure:
        fail_logged(failure, as_json=log_json)
    except OSError as error:
        fail_logged(Failure(why(error)), as_json=log_json)


class BrokerFailed(Failure):
    """A broker that was ready has ended by itself. Another start may succeed, unlike after other failures."""

    exit_code = 1


def fail_logged(failure: Failure, *, as_json: bool) -> NoReturn:
    """End the command: with a record of the log, if that is JSON, or with one line as other commands."""
    if not as_json:
        raise failure
    LOGGER.critical("%s", " ".join(failure.message.split()))
    sys.exit(failure.exit_code)


def raise_open_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit: segments and connections both need descriptors.

    Not in the broker: an embedded broker must not change the limits of its process.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def static_config(file: str | None, listen: str | None, data: str | None, settings: Iterable[str]) -> StaticConfig:
    """Return all settings with their origins: options precede environment, file and the defaults of `serve`."""
    loaded = load(file, os.environ, settings)
    texts, origins = dict(loaded.texts), dict(loaded.origins)
    for option, key, text in (("--listen", "listeners", listen and listener(listen)), ("--data", "log.dirs", data)):
        if text is None:
            continue
        if origins.get(key) == "--set":
            fail(f"{option} and --set {key} set the same config: give one of them")
        if option == "--data":
            check_directory(text, option)
            require_no_cluster(text)
        if key == "listeners":
            text = ",".join((text, *controller_entries(texts)))
        texts[key], origins[key] = text, option
    texts.setdefault("listeners", DEFAULT_LISTENER)
    if "log.dir" not in texts:
        texts.setdefault("log.dirs", DEFAULT_DATA)
    return StaticConfig(texts, origins)


def require_no_cluster(directory: str) -> None:
    """End the command if a directory is that of `cluster up`: its log directories would be damaged partitions."""
    if os.path.exists(os.path.join(directory, "broker-1", META_PROPERTIES)):
        fail(f"--data {directory}: it has the brokers of `kafkalite cluster up`, broker-1 and others; give another one")


def listener(address: str) -> str:
    """Return the listener in Kafka's form for HOST:PORT; without a host it listens on all addresses."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or (":" in host and not host.startswith("[")):
        fail(f"--listen {address}: write HOST:PORT, for example localhost:9092, 0.0.0.0:9092 or [::1]:0")
    return f"PLAINTEXT://{host or '0.0.0.0'}:{port}"


async def serve(config: BrokerConfig, notifier: Notifier, inherited: Inherited) -> None:
    """Run the broker until a signal. Raises the errors of `Broker.start`."""
    loop = asyncio.get_running_loop()
    asked = asked_to_end(loop)
    say_first(config)
    if len(inherited) > len(config.listeners):
        text = f"the service manager passes {len(inherited)} sockets for {len(config.listeners)} listener(s)"
        raise StartError(f"{text}: set `listeners` to one listener for each socket")
    broker = Broker(config=config)
    failures: list[str] = []

    def failed(text: str) -> None:
        failures.append(text)
        asked.set()

    broker.on_failed = failed
    PAUSE.enabled = True  # the process belongs to this command
    PAUSE.begin()  # until the freeze: a collection would walk all loaded objects
    try:
        await broker.start(inherited=inherited)
        GcTuning().install()
    finally:
        PAUSE.end()
    try:
        say_ready(broker.running)
        notifier.ready(f"accepting on {broker.address}")
        keep_watchdog(loop, notifier)
        give_back_freed(loop, broker.running, asked)
        await asked.wait()
        notifier.stopping("shutting down: completing requests, flushing partitions")
    finally:
        await broker.stop()
    if failures:
        raise BrokerFailed(failures[0])
    LOGGER.info("shut down cleanly")
    notifier.close()


def asked_to_end(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    """Return an event that the first signal sets; `REPEATED_S` later signals have their default effect.

    `loop.add_signal_handler` would not do: a start that recovers for a minute handles no signal before its end. For
    the same reason the handler itself ends the process if the loop could not restore the default effect in time.
    """
    asked = asyncio.Event()
    ended_by = [
        ending for ending in ENDING if ending is not signal.SIGHUP or signal.getsignal(ending) != signal.SIG_IGN
    ]
    first_at: list[float] = []

    def restore() -> None:
        for ending in ended_by:
            signal.signal(ending, signal.SIG_DFL)

    def got(number: int, _frame: object) -> None:
        if first_at:
            if time.monotonic() - first_at[0] >= REPEATED_S:
                restore()
                signal.raise_signal(number)
            return
        first_at.append(time.monotonic())
        LOGGER.info("%s received, shutting down; send it again to exit immediately", signal.Signals(number).name)
        loop.call_soon_threadsafe(asked.set)
        loop.call_soon_threadsafe(loop.call_later, REPEATED_S, restore)

    for ending in ended_by:
        signal.signal(ending, got)
        ignore_at_exit(ending)
    return asked


def give_back_freed(loop: asyncio.AbstractEventLoop, broker: RunningBroker, asked: asyncio.Event) -> None:
    """Every GIVE_BACK_S, free unused receive buffers and give freed memory to the kernel, until `asked` is set.

    Otherwise freed pages below a block in use stay resident: tens of megabytes after a burst.
    """

    def done(outcome: Outcome) -> None:
        outcome.result()
        loop.call_later(GIVE_BACK_S, give_back_freed, loop, broker, asked)

    if not asked.is_set():
        broker.listening.free_unused()
        broker.offload.run(give_back, FREE_BYTES_MAX, done=done)


def keep_watchdog(loop: asyncio.AbstractEventLoop, notifier: Notifier) -> None:
    """Notify the watchdog of the service manager from the loop, so that a blocked loop is detected."""
    if notifier.watchdog_interval_s is not None:
        notifier.watchdog()
        loop.call_later(notifier.watchdog_interval_s, keep_watchdog, loop, notifier)


def say_first(config: BrokerConfig) -> None:
    """Log the version, the log directories, and settings that have no effect or are unsafe."""
    LOGGER.info("kafkalite %s on Python %s, process %d", VERSION, platform.python_version(), os.getpid())
    LOGGER.info("log directories: %s", ", ".join(map(os.path.abspath, config.log_dirs)))
    if idle := config.without_effect():
        LOGGER.info("ignored settings: %s", ", ".join(idle))
    if config.default_replication_factor > 1 and config.coordination is None:
        LOGGER.warning(
            "default.replication.factor is %d, but this broker is alone: creating a topic without a replication factor "
            "fails with INVALID_REPLICATION_FACTOR; set default.replication.factor=1",
            config.default_replication_factor,
        )
    warn_of_other_port(config)
    if exposed := [endpoint for endpoint in config.listeners if not is_local(endpoint.host)]:
        LOGGER.warning(
            "no authentication: every client that can connect to %s can read, write and delete all data",
            ", ".join(map(str, exposed)),
        )


def warn_of_other_port(config: BrokerConfig) -> None:
    """Log advertised listeners of a file or the environment whose port is not that of --listen: clients connect there.

    No error, as an address translation between clients and broker may change the port.
    """
    origin = config.origins.get("advertised.listeners")
    if origin in (None, "--set") or config.origins.get("listeners") != "--listen":
        return
    ports = {endpoint.listener: endpoint.port for endpoint in config.listeners}
    if others := [each for each in config.advertised_listeners if each.port != ports[each.listener]]:
        LOGGER.warning(
            "advertised.listeners (in %s) is %s, with a port other than that of --listen; clients connect to the "
            "advertised port: unless that is intended, change advertised.listeners",
            origin,
            ", ".join(map(str, others)),
        )


def say_ready(broker: RunningBroker) -> None:
    """Log the result of the start, and print the address on standard output."""
    LOGGER.info("%s", start_line(broker))
    LOGGER.info("listening on %s", ", ".join(map(str, broker.addresses)))
    click.echo(f"kafkalite ready on {broker.address}")


def start_line(broker: RunningBroker) -> str:
    """Return the log line about the loaded partitions: `loaded 51 partitions (clean shutdown), 1 offline`."""
    offline = sum(bool(partition.error) for topic in broker.replicas for partition in topic.partitions.values())
    count = broker.partitions_count - offline
    partitions = f"{count} partition{'' if count == 1 else 's'}"
    if all(loaded.clean or not loaded.progress for loaded in broker.loaded):
        line = f"loaded {partitions} (clean shutdown)"
    else:
        line = f"recovered {partitions} after an unclean shutdown"
    return f"{line}, {offline} offline: see the errors above" if offline else line


def is_local(host: str) -> bool:
    """Whether an address can only be reached from this machine."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == LOCAL_NAME


def why(error: OSError) -> str:
    """Return the error text: the file or address, the reason and the next step."""
    reason = error.strerror or str(error)
    if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
        return f"{reason}; choose another address with --listen HOST:PORT"
    if error.errno == errno.EACCES and error.filename is None:
        return (
            f"{reason}: ports below {UNPRIVILEGED} are reserved for root; choose another port with --listen HOST:PORT"
        )
    return f"{error.filename}: {reason}" if error.filename else reason
