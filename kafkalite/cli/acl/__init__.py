"""`kafkalite acl`: list, add, remove and check ACLs."""

from kafkalite.cli.acl.commands import command as command
