"""`kafkalite log`: reads, repairs and adopts the files of partitions while no broker runs."""

from kafkalite.cli.log.commands import command as command
