"""Holds the passwords among the stored texts of a broker: encrypted there, decrypted here once."""

from collections.abc import Iterable, Mapping

from kafkalite.config.keys import ConfigError, Value
from kafkalite.config.passwords.encoder import PasswordEncoder
from kafkalite.config.table_security import ENCODER_SECRET, KEY_FACTORIES, KEY_LENGTHS
from kafkalite.errors import KafkaErrorCode

KEPT_MAX = 1_000  # decrypted texts


class StoredPasswords:
    """The passwords among the stored texts of a broker: encrypted there, decrypted here once.

    Arguments:
        encoder: encrypts with the present secret.
        former: decrypts with `password.encoder.old.secret`; None: it is not set.
    """

    def __init__(self, encoder: PasswordEncoder, former: PasswordEncoder | None = None) -> None:
        self._encoder = encoder
        self._former = former
        self._known: dict[str, str] = {}
        self._former_texts: set[str] = set()

    def __repr__(self) -> str:
        return "StoredPasswords()"

    def encode(self, name: str, password: str) -> str:
        """Return the text to store for a password; raises ConfigError.

        Arguments:
            name: of the config.
            password: its value.
        """
        try:
            text = self._encoder.encode(password)
        except ValueError as error:
            raise ConfigError(name, f"{name}: {error}", KafkaErrorCode.INVALID_REQUEST) from None
        self._keep(text, password)
        return text

    def decode(self, text: str) -> str:
        """Return the password of a stored text; raises ValueError without a part of it."""
        found = self._known.get(text)
        if found is None:
            try:
                found = self._encoder.decode(text)
            except ValueError:
                if self._former is None:
                    raise
                found = self._former.decode(text)
                self._former_texts.add(text)
            self._keep(text, found)
        return found

    def of_former_secret(self, texts: Iterable[str]) -> set[str]:
        """Return the stored texts that only the former secret decrypts."""
        return self._former_texts.intersection(texts)

    def with_present_secret(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return stored texts with those encrypted again that only the former secret decrypts."""
        return {
            name: self.encode(name, self._known[text]) if text in self._former_texts and text in self._known else text
            for name, text in texts.items()
        }

    def _keep(self, text: str, password: str) -> None:
        while len(self._known) >= KEPT_MAX:
            del self._known[next(iter(self._known))]
        self._known[text] = password


def stored_passwords(values: Mapping[str, Value]) -> StoredPasswords | None:
    """Return what encrypts the passwords of a broker with these values; None without a secret."""
    prefix = ENCODER_SECRET.removesuffix("secret")
    found = {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}

    def encoder(secret: Value) -> PasswordEncoder | None:
        if not secret:
            return None
        return PasswordEncoder(
            str(secret),
            str(found["keyfactory.algorithm"] or KEY_FACTORIES[0]),
            str(found["cipher.algorithm"]),
            int(str(found["key.length"])),
            int(str(found["iterations"])),
        )

    if found["key.length"] not in KEY_LENGTHS:
        name = f"{prefix}key.length"
        raise ConfigError(name, f"Invalid value {found['key.length']} for configuration {name}: 128, 192 or 256")
    present = encoder(found["secret"])
    return None if present is None else StoredPasswords(present, encoder(found["old.secret"]))
