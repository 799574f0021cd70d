"""`kafkalite security`: create certificates and a first user; report weak settings."""

from kafkalite.cli.security.commands import command as command
