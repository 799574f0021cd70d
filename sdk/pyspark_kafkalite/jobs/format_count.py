"""Numbers with their nouns, in the lines that a job prints."""


def format_count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun in the singular or the plural.

    Arguments:
        number: of things.
        noun: in the singular.
        plural: empty = the noun with an s.
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
