"""The errors of a table. Each text names the table, the reason and what to do."""


class TableError(Exception):
    """A table cannot be opened, read or changed."""


class UnsupportedFileSystemError(TableError):
    """The file system has no hard links, or its name is a URL: use Delta there."""


class DamagedTableError(TableError):
    """A file that a commit names is missing or differs, or a commit cannot be read."""


class CommitRefusedError(TableError):
    """A commit does not continue the table. The table is unchanged.

    Attributes:
        reason: "gap", "overlap", "owner" (another query writes to the table), "batch" (the batch id was committed with
            other offsets), "split" (the ranges of one partition are not adjacent), "topic" (a topic was deleted and
            created again) or "replaced" (a compaction replaces files that the table does not contain).
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
