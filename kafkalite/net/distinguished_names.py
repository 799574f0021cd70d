"""Reads the distinguished name of a certificate's subject, as Java's X500Principal.getName() returns it (RFC 2253).

Kafka maps this text to a principal. Its rules: the last attribute is first; attributes that RFC 2253 does not name are
written as OID=#hex; special characters are escaped by a backslash.
"""

from kafkalite.net.certificates import der_element, der_elements, subject_of

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# Tags of DER: the texts that Java reads, and their encodings.
ENCODINGS = {12: "utf-8", 19: "ascii", 20: "latin-1", 22: "ascii", 27: "latin-1", 28: "utf-32-be", 30: "utf-16-be"}
SPECIAL = frozenset(',=+<>#;"\\')


def distinguished_name(certificate: bytes) -> str:
    """Return the name of the subject of a certificate.

    Arguments:
        certificate: in DER format.

    Raises:
        ValueError: it is malformed.
    """
    try:
        relative = [
            "+".join(_attribute(attribute) for _, attribute in der_elements(part))
            for _, part in der_elements(subject_of(certificate))
        ]
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("the subject of a certificate is malformed") from error
    return ",".join(reversed(relative))


def _attribute(data: bytes) -> str:
    """Return one attribute: KEYWORD=text or OID=#hex (AVA.toRFC2253String)."""
    _, oid, rest = der_element(data)
    tag, value, _ = der_element(rest)
    name = object_identifier(oid)
    keyword, encoding = KEYWORDS.get(name), ENCODINGS.get(tag)
    if keyword is None or encoding is None:
        return f"{keyword or name}=#{rest.hex()}"
    return f"{keyword}={_escape(value.decode(encoding))}"


def _escape(text: str) -> str:
    escaped = "".join(f"\\{char}" if char in SPECIAL else "\\00" if char == "\0" else char for char in text)
    inner = escaped.strip(" \r")
    begin = escaped.find(inner) if inner else len(escaped)
    before, after = escaped[:begin], escaped[begin + len(inner) :]
    return "".join(f"\\{char}" for char in before) + inner + "".join(f"\\{char}" for char in after)


def object_identifier(data: bytes) -> str:
    """Return an object identifier in dotted form; `data` is its content in DER."""
    numbers, value = [], 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
