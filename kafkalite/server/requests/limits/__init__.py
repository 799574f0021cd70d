"""Limits of what one principal holds at a broker (`kafkalite.principal.max.*`), imported with the first one."""
