"""`kafkalite group`: list, describe, create, delete, rewind, reset, verify and migrate groups; export their offsets."""

from kafkalite.cli.group.commands import command as command
