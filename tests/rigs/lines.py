"""What is logged, as text: pytest keeps all records, errors in them, too, and with these the files that frames hold."""

import logging
from collections import deque

KEPT = 100


class Lines(logging.Handler):
    """The last warnings and errors. It stands before pytest's handlers, who get nothing but text, too."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: deque[str] = deque(maxlen=KEPT)

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args = record.getMessage(), ()
        if record.exc_info is not None:
            record.exc_text, record.exc_info = logging.Formatter().formatException(record.exc_info), None
        self.said.append(record.msg)
