"""`kafkalite transaction`: list, describe, find hanging ones, abort and terminate transactions."""

from kafkalite.cli.transaction.commands import command as command
