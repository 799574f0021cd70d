"""Certificates for tests, created by the command `openssl`: an authority, and what it signs."""

import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

LOCALHOST = "IP:127.0.0.1,DNS:localhost"
EC = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1"


class Pem(NamedTuple):
    """A certificate and its key, as files."""

    cert: Path
    key: Path

    def bundle(self) -> Path:
        """A file with both, as Java reads it."""
        path = self.cert.with_suffix(".bundle.pem")
        path.write_text(self.key.read_text() + self.cert.read_text())
        return path


class Authority:
    """Signs certificates.

    Arguments:
        folder: for its files, created if missing.
        name: of the authority.
    """

    def __init__(self, folder: Path, name: str = "kafkalite tests") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.cert, self._key = folder / "ca.pem", folder / "ca.key"
        self._run(f"req -x509 {EC} -nodes -days 2 -subj /CN={name.replace(' ', '-')} -keyout ca.key -out ca.pem")

    def issue(
        self, name: str, names: str = LOCALHOST, days: int = 2, password: str | None = None, key: str = EC
    ) -> Pem:
        """Sign a certificate.

        Arguments:
            name: of the subject and the files.
            names: the alternative names.
            days: how long it is valid; -1 = it expired yesterday.
            password: of the key; None = the key is not encrypted.
            key: the options of `openssl req` that choose its algorithm.
        """
        encryption = "-nodes" if password is None else f"-passout pass:{password}"
        self._run(
            f"req {key} {encryption} -subj /CN={name} -addext subjectAltName={names} -keyout {name}.key -out {name}.csr"
        )
        self._run(
            f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days {days} -copy_extensions copyall "
            f"-out {name}.pem"
        )
        return Pem(self.folder / f"{name}.pem", self.folder / f"{name}.key")

    def server_context(self, pem: Pem, *, clients: bool = False) -> ssl.SSLContext:
        """A server context; `clients`: it requires a certificate of clients."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem.cert, pem.key)
        if clients:
            context.load_verify_locations(self.cert)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _run(self, arguments: str) -> None:
        subprocess.run(["openssl", *arguments.split()], cwd=self.folder, check=True, capture_output=True)
