"""Options, addresses, tables and error texts that the client commands share.

A command fails with exit code 2 and one line with the reason and the next step, never with a traceback.
"""

import asyncio
import errno
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from math import isfinite
from typing import TYPE_CHECKING, Any, ParamSpec

import click

from kafkalite.cli.failure import USER, PartitionSubject, fail
from kafkalite.cli.signals import interruptible
from kafkalite.errors import AuthenticationError, BrokerResponseError, KafkaError, KafkaErrorCode, error_for
from kafkalite.model import shown_address

DEFAULT_BOOTSTRAP = "localhost:9092"
TREE = "zookeeper://"
PORT_MAX = 65_535
NAMED_MAX = 20  # subjects of one error
SHOWN_MAX = 5  # errors listed in the last line of a command
CLIENT_ID = "kafkalite-cli"
# The next step after an error code, if its message does not name it.
NEXT_STEPS: dict[int, str] = {
    KafkaErrorCode.GROUP_ID_NOT_FOUND: "`kafkalite group list` lists the groups",
    KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`kafkalite topic list` lists the topics",
    KafkaErrorCode.INVALID_TOPIC_EXCEPTION: "a name has up to 249 ASCII letters, digits, '.', '_' and '-'",
    KafkaErrorCode.NON_EMPTY_GROUP: "stop its members first",
    KafkaErrorCode.INCONSISTENT_GROUP_PROTOCOL: "stop its members first, or choose another name",
    KafkaErrorCode.OFFSET_OUT_OF_RANGE: "it was deleted or truncated; start at the first record with --from-beginning",
    KafkaErrorCode.MESSAGE_TOO_LARGE: "change it with `kafkalite topic alter TOPIC --config max.message.bytes=BYTES`",
    KafkaErrorCode.KAFKA_STORAGE_ERROR: "see the log of the broker: a full or failed disk, an offline partition",
    KafkaErrorCode.INVALID_REPLICATION_FACTOR: "give -r, or set default.replication.factor of the broker",
    KafkaErrorCode.TOPIC_DELETION_DISABLED: "set delete.topic.enable=true in the configuration of the broker",
    KafkaErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "`kafkalite transaction list` lists the transactional ids",
    KafkaErrorCode.INVALID_SESSION_TIMEOUT: "allowed by group.min.session.timeout.ms, group.max.session.timeout.ms",
}

POSITIONS = (
    "start or earliest, end or latest, an offset, +N (N offsets after the start), -N (N before the end), a time "
    "(2013-07-01, 2013-07-01T12:00:00Z; UTC by default) or @MILLISECONDS since 1970"
)
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # only writes fail so; commands write only to standard output

NONE: Mapping[str, KafkaError] = {}

P = ParamSpec("P")

_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")

_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^:/\[\]\s]+)):([0-9]{1,10})")

_bootstrap_option = click.option(
    "-b",
    "--bootstrap-server",
    "bootstrap",
    default=DEFAULT_BOOTSTRAP,
    show_default=True,
    envvar="KAFKALITE_BOOTSTRAP",
    show_envvar=True,
    metavar="HOST:PORT",
    help="Broker to connect to; of several, separated by commas, the first one that answers is used. "
    "zookeeper://HOST:PORT/CHROOT: the brokers that are registered there.",
)


@dataclass(frozen=True)
class Cluster:
    """The cluster of a command.

    Attributes:
        addresses: hosts and ports; none with a tree.
        settings: keyword arguments of every client of the SDK.
        producer: keyword arguments of producers.
        reached: the addresses that a client of this command has connected to.
        tree: "zookeeper://HOST:PORT/CHROOT", where the brokers are registered; "" = `addresses` has them.
    """

    addresses: tuple[tuple[str, int], ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    producer: Mapping[str, Any] = field(default_factory=dict)
    reached: set[tuple[str, int]] = field(default_factory=set, compare=False)
    tree: str = ""

    @property
    def servers(self) -> list[str]:
        """`bootstrap_servers` of clients, to be tried one after another."""
        return [self.tree] if self.tree else [address_text(each) for each in self.addresses]


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say how to connect; the command receives them as `cluster`."""

    @_bootstrap_option
    @click.option(
        "--client-config",
        type=click.Path(exists=True, dir_okay=False),
        envvar="KAFKALITE_CLIENT_CONFIG",
        show_envvar=True,
        metavar="FILE",
        help="Settings of the client, such as security.protocol and sasl.password, one KEY=VALUE in a line.",
    )
    @click.option("-X", "client_settings", multiple=True, metavar="KEY=VALUE", help="A setting, as in --client-config.")
    @wraps(command)
    def run(
        *args: Any, bootstrap: str, client_config: str | None, client_settings: tuple[str, ...], **options: Any
    ) -> None:
        require_text()
        command(*args, cluster=cluster_of(bootstrap, client_config, client_settings), **options)

    return run


def require_text() -> None:
    """End the command if a value that is no path is not UTF-8: requests and files have texts in UTF-8."""
    context = click.get_current_context()
    for param in context.command.params:
        value = context.params.get(param.name or "")
        if not isinstance(param.type, click.Path):
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, str) and not each.isascii():
                    try:
                        each.encode()
                    except UnicodeEncodeError:
                        fail(f"{param.get_error_hint(context)}: {each!r} is not UTF-8 text")


def cluster_of(bootstrap: str, client_config: str | None, client_settings: tuple[str, ...]) -> Cluster:
    """Return the cluster of the current command; ends the command if an address or a setting is not valid.

    Arguments:
        bootstrap: addresses, separated by commas, or a tree.
        client_config: a file with settings.
        client_settings: more settings, KEY=VALUE.
    """
    settings: dict[str, Any] = {}
    producer: dict[str, Any] = {}
    if client_config is not None or client_settings:
        from kafkalite.cli.client_config import check_command, read_settings, split_settings

        check_command(click.get_current_context().info_name, client_settings)
        settings, producer = split_settings(read_settings(client_config, client_settings))
        if "sasl_username" in settings and not settings.get("sasl_tokenauth"):
            click.get_current_context().meta[USER] = settings["sasl_username"]
    configured = settings.pop("bootstrap_servers", None)
    if configured is not None and is_default("bootstrap"):
        bootstrap = configured
    if bootstrap.startswith(TREE):
        return Cluster((), settings, producer, tree=bootstrap)
    return Cluster(tuple(map(parse_address, bootstrap.split(","))), settings, producer)


class Several(click.Argument):
    """An argument of one value or more, whose error names it as one of a single value."""

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """The name of the argument in errors."""
        return super().get_error_hint(ctx).replace("...", "")


def is_default(name: str) -> bool:
    """Whether neither the command line nor the environment has set a parameter."""
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.DEFAULT


BASE64_HELP = 'Bytes that are not UTF-8 are encoded as {"base64": "AAEC"}.'


if TYPE_CHECKING:
    Choice = click.Choice[str]
else:
    Choice = click.Choice  # without a parameter before click 8.2


class AnyCaseChoice(Choice):
    """One of several names, without regard to case; an error lists them as the help does.

    Arguments:
        names: as the help shows them.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names, case_sensitive=False)

    def get_invalid_choice_message(self, value: object, ctx: click.Context | None) -> str:
        """Return the text of the error of another name; click has the names in lower case."""
        return f"{value!r} is not one of {', '.join(self.choices)}."


class Seconds(click.FloatRange):
    """A finite number of seconds, from `min` on."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number. Raises click.BadParameter."""
        seconds: float = super().convert(value, param, ctx)
        if not isfinite(seconds):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


def names_option(name: str, argument: str, choices: Sequence[str], help: str) -> Callable[..., Any]:
    """An option with one of several names, without regard to case; it may be repeated.

    Arguments:
        name: of the option, such as `--state`.
        argument: of the command.
        choices: the names.
        help: the beginning of its text.
    """
    return click.option(
        name,
        argument,
        multiple=True,
        type=AnyCaseChoice(choices),
        metavar=name.removeprefix("--").upper(),
        help=f"{help}; may be repeated: {', '.join(choices)}.",
    )


def some_topics_option(help: str, complete: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--topic` for topics or some of their partitions (`positions.parse_topics`).

    Arguments:
        help: its text.
        complete: completes a topic for the shell.
    """
    return click.option(
        "-t",
        "--topic",
        "topics",
        multiple=True,
        metavar="TOPIC[:P,P...]",
        shell_complete=complete,
        help=help,
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")
servers_timeout_option = click.option(
    "--timeout",
    type=Seconds(min=0.1),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long servers are tried.",
)
zookeeper_config_option = click.option(
    "--zookeeper-config",
    "config",
    metavar="FILE",
    help="Settings of a broker (server.properties), of which TLS and identity for ZooKeeper are used.",
)


def parse_address(address: str) -> tuple[str, int]:
    """Split HOST:PORT ([::1]:9092 for IPv6); ends the command if the address is invalid."""
    found = _ADDRESS.fullmatch(address.strip())
    if found is None:
        fail(f"{shown_address(address)!r} is not an address; write HOST:PORT, for example {DEFAULT_BOOTSTRAP}")
    if not 0 < int(found[3]) <= PORT_MAX:
        fail(f"{address!r}: the port is {found[3]}, allowed is 1 to {PORT_MAX}")
    return found[1] or found[2], int(found[3])


def address_text(address: tuple[str, int]) -> str:
    """Return HOST:PORT, with brackets for IPv6."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def with_needed_right(code: int, text: str, subject: str = "") -> str:
    """Return the text of an error, see `acl.needed.with_needed_right`."""
    if not error_for(code).code.name.endswith("_AUTHORIZATION_FAILED"):
        return text
    from kafkalite.cli.acl.needed import with_needed_right as complete  # few commands fail so

    return complete(code, text, subject)


def command_runner(work: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Turn an async command into a plain one whose failures are one line."""

    @wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            asyncio.run(interruptible(work(*args, **kwargs)))
        except KafkaError as error:
            fail(client_error(error))
        except BrokenPipeError:
            raise  # the reader of the output is gone: the command ends silently
        except OSError as error:
            fail(describe_os_error(error))
        except (asyncio.CancelledError, KeyboardInterrupt) as interrupt:
            raise click.Abort from interrupt

    return run


def describe_os_error(error: OSError) -> str:
    """Return the file, or standard output if it cannot be written, and the reason."""
    name = error.filename or ("standard output" if error.errno in NO_SPACE else None)
    reason = error.strerror or str(error)
    return f"{name}: {reason}" if name else reason


def refusal(error_code: int, message: str | None, subject: str) -> str:
    """Return the text for an error code, with the message of the broker if it sent one."""
    error = error_for(error_code, message)
    reason = (error.message or error.code.message).removeprefix(f"{subject}: ")
    reason, step, command = reason.partition("; `")  # the SDK has named the command that grants a right
    text = f"{subject or repr(subject)}: {reason} ({error.code.name}){step}{command}"
    return with_needed_right(error_code, text, subject)


def explain_error(error: KafkaError, subject: str) -> str:
    """Return the text for an error of the SDK about a resource."""
    if isinstance(error, BrokerResponseError):
        known = error.code == KafkaErrorCode.GROUP_ID_NOT_FOUND  # the message of brokers names the group again
        return refusal(error.code, None if known else error.message, subject)
    return f"{subject}: {client_error(error)}"


def client_error(error: KafkaError) -> str:
    """Return the text for an error of the SDK: with the command that grants a missing right, and names of settings."""
    if isinstance(error, BrokerResponseError) and not isinstance(error, AuthenticationError):
        return with_needed_right(error.code, str(error))
    from kafkalite.cli.client_config import with_cli_names  # few commands fail so

    return with_cli_names(str(error))


def fail_for(errors: Mapping[str, KafkaError], then: str = "", steps: Mapping[int, str] = NEXT_STEPS) -> None:
    """End the command if resources have failed: their errors, the next steps (`NEXT_STEPS`), and `then`."""
    if errors:
        texts = "; ".join(explain_errors(errors))
        fail(texts + next_steps((error.code for error in errors.values() if error.code is not None), steps) + then)


def explain_errors(errors: Mapping[str, KafkaError]) -> list[str]:
    """Return a text for each reason, which names the subjects that have failed for it."""
    return [f"{join_subjects(names)}: {reason}" for reason, names in subjects_by_reason(errors).items()]


def join_subjects(names: Sequence[str]) -> str:
    """Subjects in one line; the group of partitions is named once."""
    first = names[0]
    if not isinstance(first, PartitionSubject) or not first.group:
        return join_names(names)
    return f"{first.group}: {join_names([each.removeprefix(f'{first.group}: ') for each in names])}"


def subjects_by_reason(errors: Mapping[str, KafkaError]) -> dict[str, list[str]]:
    """Return the subjects of errors by the text of the error."""
    subjects: dict[str, list[str]] = {}
    for subject, error in errors.items():
        subjects.setdefault(explain_error(error, subject).removeprefix(f"{subject}: "), []).append(subject)
    return subjects


def fail_for_unknown(errors: Mapping[str, KafkaError], what: str, more: Mapping[str, KafkaError] = NONE) -> None:
    """End the command if a part of what was printed is unknown: the subjects are named once for each reason.

    Arguments:
        errors: why it is unknown, by partition or broker.
        what: it is, such as "the lag".
        more: errors of other resources, as in `fail_for`.
    """
    grouped = subjects_by_reason(errors)
    texts = [f"{what} of {join_names(names)} is unknown: {reason}" for reason, names in grouped.items()]
    texts += [explain_error(error, subject) for subject, error in more.items()]
    if texts:
        codes = (error.code for error in (*errors.values(), *more.values()) if error.code is not None)
        fail("; ".join(texts) + next_steps(codes))


def join_names(names: Sequence[str]) -> str:
    """Names in one line, the first ones of many."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def shorten_errors(errors: Sequence[str]) -> str:
    """The first error texts, and the number of the others."""
    more = len(errors) - SHOWN_MAX
    return "; ".join(errors[:SHOWN_MAX]) + (f"; and {more} more" if more > 0 else "")


def check(error_code: int, message: str | None, subject: str) -> None:
    """End the command if the response has an error code."""
    if error_code:
        fail(refusal(error_code, message, subject) + next_steps([error_code]))


def next_steps(error_codes: Iterable[int], steps: Mapping[int, str] = NEXT_STEPS) -> str:
    """Return the next steps after these errors, each once, as a suffix of the error text; empty if none is known."""
    return "".join(f"; {steps[code]}" for code in dict.fromkeys(error_codes) if code in steps)


def key_value(text: str) -> tuple[str, str]:
    """Split KEY=VALUE of a config; ends the command if the text has no key."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        fail(f"{text!r} is not a config; write KEY=VALUE, for example retention.ms=86400000")
    return key, value


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[object]], as_json: bool) -> None:
    """Print a table with aligned columns, or one JSON object per row with the column names in snake_case."""
    listed = [list(row) for row in rows]
    if as_json:
        import json

        names = [column_key(column) for column in columns]
        for row in listed:
            click.echo(json.dumps(dict(zip(names, row, strict=True))))
        return
    texts = [list(columns), *([cell_text(cell) for cell in row] for row in listed)]
    widths = [max(len(row[at]) for row in texts) for at in range(len(columns))]
    numeric = [is_numeric([row[at] for row in listed]) for at in range(len(columns))]
    for texts_of_row in texts:
        cells = zip(texts_of_row, widths, numeric, strict=True)
        click.echo(
            "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells).rstrip()
        )


def column_key(column: str) -> str:
    """The JSON key of a column: LOG-END-OFFSET is log_end_offset, PartitionCount is partition_count."""
    return _WORD_START.sub("_", column).replace("-", "_").lower()


def cell_text(cell: object) -> str:
    """A value in a table: lists are joined with commas, a missing value is a dash."""
    if isinstance(cell, list | tuple):
        return ",".join(map(str, cell)) or "-"
    return "-" if cell is None or cell == "" else f"{cell:.1f}" if isinstance(cell, float) else str(cell)


def is_numeric(cells: Sequence[object]) -> bool:
    """Whether a column holds only numbers, which are aligned to the right."""
    return bool(cells) and all(cell is None or isinstance(cell, int | float) for cell in cells)
