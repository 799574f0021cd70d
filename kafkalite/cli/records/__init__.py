"""Reads, formats and sends the records of `kafkalite produce` and `kafkalite consume`."""
