"""`kafkalite log`: the files of partitions, read, repaired and adopted while no broker runs."""

from kafkalite.cli.log.commands import command as command
