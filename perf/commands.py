"""The commands `compare`, `clients`, `pipeline` and `profile`: their options and their output."""

import importlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from perf import report
from perf.brokers.registry import BROKERS, COMPARED
from perf.clients import compare as clients_compare
from perf.clients import report as clients_report
from perf.clients.registry import MODULES, load
from perf.clients.rows import ROWS
from perf.compare import Plan, compare
from perf.failures import measuring
from perf.loads import GROUPS, LOADS
from perf.pipeline import compare as pipeline_compare
from perf.pipeline import drivers
from perf.pipeline import report as pipeline_report
from perf.pipeline.rows import ROWS as PIPELINE_ROWS
from perf.profile import profile

RESULTS = Path(__file__).parent / "results"


def _chosen(kind: str, names: str, known: Mapping[str, object], groups: Mapping[str, Sequence[str]]) -> list[str]:
    given = [name.strip() for name in names.split(",") if name.strip()]
    wanted = [name for each in given for name in groups.get(each, [each])]
    for name in wanted:
        if name not in known:
            raise click.BadParameter(f"{name!r} is none of: {', '.join(known)}", param_hint=kind)
    if not wanted:
        raise click.BadParameter("names nothing", param_hint=kind)
    return wanted


def _import_client() -> None:
    """Raise ModuleNotFoundError before a broker starts where the client of the loads is not installed."""
    importlib.import_module("confluent_kafka")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure brokers as processes of their own."""


@main.command("compare")
@click.option("--brokers", default="all", help=f"Comma separated, of: {', '.join(BROKERS)}.")
@click.option("--loads", default="all", help=f"Comma separated, of: {', '.join([*GROUPS, *LOADS])}.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Rounds after the warm-up.")
@click.option("--quick", is_flag=True, help="Use small sizes: a smoke test, not a measurement.")
@click.option(
    "--work",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Directory for the data of the brokers.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Write OUT.json, .md, .svg [default: perf/results/DATE].")
def compare_command(brokers: str, loads: str, rounds: int, quick: bool, work: Path | None, out: Path | None) -> None:
    """Drive the brokers with the same loads in turn and report medians.

    Example: python -m perf compare --brokers kafkalite,kafka --loads produce-100,consume-100 --rounds 5
    """
    _import_client()
    kinds = [BROKERS[name] for name in _chosen("--brokers", brokers, BROKERS, {"all": list(COMPARED)})]
    chosen = [LOADS[name] for name in _chosen("--loads", loads, LOADS, GROUPS)]
    for name, reason in [(part.name, part.missing()) for part in kinds] + [
        (part.name, part.missing()) for part in chosen
    ]:
        if reason is not None:
            raise click.ClickException(f"{name} cannot run here: {reason}")
    plan = Plan(kinds, chosen, rounds, quick, work)
    with measuring():
        results = compare(plan, lambda line: click.echo(line, err=True))
    for result in results:
        figure = result.load.figures[0]
        click.echo(f"{result.load.name}: {figure.title}, {figure.better} is better")
        medians = {kind.name: result.medians(kind.name)[figure.key] for kind in kinds if result.samples.get(kind.name)}
        click.echo("\n".join(report.bars_for_terminal(figure, medians)))
    out = out or RESULTS / datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S")
    for path in report.write(out, report.as_json(plan, results)):
        click.echo(f"written: {path}")


@main.command("clients")
@click.option(
    "--brokers", default="kafkalite,kafka", show_default=True, help=f"Comma separated, of: {', '.join(BROKERS)}."
)
@click.option("--clients", default="all", help=f"Comma separated, of: {', '.join(MODULES)}.")
@click.option("--rows", default="all", help=f"Comma separated, of: {', '.join(ROWS)}.")
@click.option("--repetitions", default=5, show_default=True, type=click.IntRange(1), help="Runs after the warm-up.")
@click.option("--quick", is_flag=True, help="Use small sizes: a smoke test, not a measurement.")
@click.option(
    "--work",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Directory for the data of the brokers.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write OUT.json, .md [default: perf/results/DATE-clients]."
)
def clients_command(
    brokers: str, clients: str, rows: str, repetitions: int, quick: bool, work: Path | None, out: Path | None
) -> None:
    """Measure client libraries, each as a process of its own, and compare the SDK with the limits.

    Example: python -m perf clients --rows produce-100,consume-poll --clients kafkalite,confluent --repetitions 5
    """
    kinds = [BROKERS[name] for name in _chosen("--brokers", brokers, BROKERS, {"all": list(BROKERS)})]
    chosen = {name: load(name) for name in _chosen("--clients", clients, MODULES, {"all": list(MODULES)})}
    wanted = [ROWS[name] for name in _chosen("--rows", rows, ROWS, {"all": list(ROWS)})]
    for name, reason in [(kind.name, kind.missing()) for kind in kinds] + [
        (name, client.missing()) for name, client in chosen.items()
    ]:
        if reason is not None:
            raise click.ClickException(f"{name} cannot run here: {reason}")
    plan = clients_compare.Plan(kinds, chosen, wanted, repetitions, quick, work)
    with measuring():
        results = clients_compare.compare(plan, lambda line: click.echo(line, err=True))
    measured = clients_report.as_json(plan, results)
    click.echo(clients_report.as_markdown(measured))
    out = out or RESULTS / datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S-clients")
    for path in clients_report.write(out, measured):
        click.echo(f"written: {path}")


@main.command("pipeline")
@click.option("--rows", default="all", help=f"Comma separated, of: {', '.join(PIPELINE_ROWS)}.")
@click.option("--repetitions", default=5, show_default=True, type=click.IntRange(1), help="Runs after the warm-up.")
@click.option("--percent", default=100, show_default=True, type=click.IntRange(1), help="Of the records of each row.")
@click.option(
    "--work",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default="/dev/shm",
    show_default=True,
    help="Directory for all files.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write OUT.json, .md [default: perf/results/DATE-pipeline]."
)
def pipeline_command(rows: str, repetitions: int, percent: int, work: Path, out: Path | None) -> None:
    """Measure the Spark pipeline beside Spark's own Kafka connector, in turn on one broker.

    Example: python -m perf pipeline --rows read-1024,sink --repetitions 5
    """
    wanted = [PIPELINE_ROWS[name] for name in _chosen("--rows", rows, PIPELINE_ROWS, {"all": list(PIPELINE_ROWS)})]
    broker = BROKERS["kafkalite"]
    if (reason := drivers.missing() or broker.missing()) is not None:
        raise click.ClickException(reason)
    plan = pipeline_compare.Plan(broker, wanted, repetitions, percent, work)
    with measuring():
        results = pipeline_compare.compare(plan, lambda line: click.echo(line, err=True))
    measured = pipeline_report.as_json(plan, results)
    click.echo(pipeline_report.as_markdown(measured))
    out = out or RESULTS / datetime.now(UTC).strftime("%Y-%m-%d-%H%M%S-pipeline")
    for path in pipeline_report.write(out, measured):
        click.echo(f"written: {path}")


@main.command("profile")
@click.option("--broker", default="kafkalite", type=click.Choice(list(BROKERS)), show_default=True)
@click.option("--load", "load", default="produce-100", type=click.Choice(list(LOADS)), show_default=True)
@click.option("--quick", is_flag=True, help="Small sizes.")
@click.option("--lines", default=40, show_default=True, help="Lines of the report to show.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep perf.data here.")
def profile_command(broker: str, load: str, quick: bool, lines: int, out: Path | None) -> None:
    """Run one load against one broker under `perf record` and show where its CPU time went."""
    _import_client()
    with measuring():
        click.echo(profile(BROKERS[broker], LOADS[load], quick=quick, lines=lines, out=out))
