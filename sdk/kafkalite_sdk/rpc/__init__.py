"""Any declared request to any broker, many in flight: `Connection.poll`, `Call` and `Reply`."""

from kafkalite_sdk.rpc.call import Call, Reply
from kafkalite_sdk.rpc.connection import Connection

__all__ = ["Call", "Connection", "Reply"]
