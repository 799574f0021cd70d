"""`kafkalite group`: list, describe, create, delete, rewind and reset groups; export and import their offsets."""

from kafkalite.cli.group.commands import command as command
