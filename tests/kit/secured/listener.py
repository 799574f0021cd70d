"""The listener of a secured broker: its settings, its user with ACLs, and the front before it."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

from kafkalite.config.jaas import MODULES
from tests.kit.certificates import Authority
from tests.kit.ports import free_port
from tests.kit.secured.logins import HOST, MECHANISM, forget, register

ROOT = Path(__file__).parents[3]
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class SecuredListener:
    """A listener for clients with SASL_SSL, and a plaintext one for the kit, whose clients are super users.

    Arguments:
        authority: that signs the broker's certificate.
        port: the front's, which clients know.
    """

    def __init__(self, authority: Authority, port: int) -> None:
        self._front: subprocess.Popen[bytes] | None = None
        self._port, self._own, self._admin = port, free_port(), free_port()
        self._cafile = authority.cert
        admin = f"ADMIN://{HOST}:{self._admin}"
        self.settings = {
            "listeners": f"CLIENTS://{HOST}:{self._own},{admin}",
            "advertised.listeners": f"CLIENTS://{HOST}:{port},{admin}",
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,ADMIN:PLAINTEXT",
            "inter.broker.listener.name": "ADMIN",
            "sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.clients.{MECHANISM.lower()}.sasl.jaas.config": f"{MODULES[MECHANISM]} required;",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.issue(f"broker-{port}").bundle()),
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS",
        }

    def open(self) -> None:
        """The broker has started: create the user once, and serve clients."""
        if self._front is not None:
            return
        import_module("tests.kit.secured.rights").create_user(f"{HOST}:{self._admin}")
        command = [sys.executable, "-m", "tests.kit.secured.front", str(self._port), str(self._own), str(self._cafile)]
        pipe = subprocess.PIPE
        self._front = subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT)
        assert self._front.stdout is not None and self._front.stdout.readline() == b"ready\n", "no front"
        register(self._port, self._cafile)

    def close(self) -> None:
        """End the front."""
        forget(self._port)
        if self._front is not None:
            self._front.communicate()
            self._front = None
