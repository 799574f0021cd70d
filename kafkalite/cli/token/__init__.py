"""`kafkalite token`: create, list, renew and expire delegation tokens."""

from kafkalite.cli.token.commands import command as command
