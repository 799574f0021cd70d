"""`kafkalite security`: create certificates and a super user; report weak settings."""

from kafkalite.cli.security.commands import command as command
