"""`kafkalite quota`: list, add and remove client quotas."""

from kafkalite.cli.quota.commands import command as command
