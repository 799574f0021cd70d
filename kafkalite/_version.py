"""The version, in one place; `setup` and `--version` read it."""

VERSION = "0.1.0.dev0"
