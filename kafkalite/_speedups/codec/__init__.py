"""The codec of Kafka messages: `decoder` and `encoder` use `layouts`; `incremental_decoder` is for large ones."""

from kafkalite._speedups.codec.decoder import (
    RequestHeader,
    decode,
    read_request_header,
    read_response_header,
    register_request,
    response_header,
    set_elements_max,
)
from kafkalite._speedups.codec.encoder import (
    Encoded,
    encode,
    encode_elements,
    encode_parts,
    encode_request,
    encode_request_parts,
)
from kafkalite._speedups.codec.layouts import StructBase

__all__ = [
    "Encoded",
    "RequestHeader",
    "StructBase",
    "decode",
    "encode",
    "encode_elements",
    "encode_parts",
    "encode_request",
    "encode_request_parts",
    "read_request_header",
    "read_response_header",
    "register_request",
    "response_header",
    "set_elements_max",
]
