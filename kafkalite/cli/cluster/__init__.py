"""`kafkalite cluster`: the status of a cluster, its brokers and log directories, and clusters of one machine."""

from kafkalite.cli.cluster.commands import command as command
