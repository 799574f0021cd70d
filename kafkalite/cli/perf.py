"""`kafkalite perf`: the comparison harness of the source checkout.

The harness needs compilers and other brokers, so it is not shipped with the package, where this command does not
exist (`main.COMMANDS`). Here it is only called.
"""

import subprocess
import sys
from pathlib import Path

import click

CHECKOUT = Path(__file__).resolve().parents[2]


@click.command(
    "perf",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, args: tuple[str, ...]) -> None:
    """Measure this broker, or compare it with others: `compare` and `profile`.

    All arguments are passed to the benchmark. Its help: kafkalite perf compare --help.
    """
    done = subprocess.run([sys.executable, "-m", "perf", *(args or ("--help",))], cwd=CHECKOUT)
    ctx.exit(done.returncode)
