"""The errors of a batch that is not decoded. Nothing of the batch is committed."""


class DecodingError(RuntimeError):
    """A batch cannot be decoded."""


class SchemaMisfitError(DecodingError):
    """A schema does not fit that of the table; the text shows both."""


class BudgetExceededError(DecodingError):
    """A batch has more bad values than its budget permits."""
