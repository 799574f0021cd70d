"""The error of a measurement without a figure."""


class VerificationError(Exception):
    """Records are missing or a request failed: the figure would be worth nothing."""
