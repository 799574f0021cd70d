"""The errors of the Spark source and sink that are not those of the SDK."""


class OptionError(ValueError):
    """An option is missing, unknown or not valid.

    Arguments:
        option: its name as in Spark's documentation.
        reason: the value, and what is expected.
    """

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option}: {reason}")
        self.option = option


class SchemaError(ValueError):
    """A schema that a user has passed does not fit the source or the sink."""


class DataLossError(RuntimeError):
    """Records were removed before they were read; the text names their offsets."""


class DecisionError(RuntimeError):
    """A record of the topic of decisions cannot be read."""


class UndecidedBatchError(RuntimeError):
    """The sink has not decided a micro-batch, so nothing of it is committed; its repetition writes it again."""


class DecidedTransactionLostError(RuntimeError):
    """A transaction of a decided micro-batch has ended without a commit; the text names it, and how to continue."""
