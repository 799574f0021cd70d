"""`kafkalite user`: list, add and remove users with SCRAM credentials."""

from kafkalite.cli.user.commands import command as command
