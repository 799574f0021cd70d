"""Encrypts the passwords among the dynamic configs of a broker, as `EncryptingPasswordEncoder` of Apache Kafka 3.9.

An encrypted text has all that its decryption needs besides the secret: `name:value` pairs, separated by commas. The key
is PBKDF2 of the secret, which costs some 3 ms of CPU for 4,096 iterations. The package `cryptography` is imported when
a password is encrypted or decrypted.

Deviations: of the ciphers of Java only AES with CBC or GCM; at most `ITERATIONS_MAX` iterations.
Source: EncryptingPasswordEncoder.java, IvParamsEncoder.java, GcmParamsEncoder.java of Apache Kafka 3.9.
"""

import binascii
import hashlib
import os
from base64 import b64decode, b64encode
from dataclasses import dataclass, field

from kafkalite.config.table_security import CBC, ENCODER_SECRET, GCM, KEY_FACTORIES, KEY_LENGTHS

SALT_BYTES = 256
CBC_IV_BYTES, GCM_IV_BYTES = 16, 12
BLOCK_BITS = TAG_BITS = 128
ITERATIONS_MAX = 100_000  # of a stored text: a larger number would stop the event loop
TEXT_CHARACTERS_MAX = 1_000_000
MISSING = "encrypted passwords need cryptography: pip install 'kafkalite[security]'"


@dataclass(frozen=True, slots=True)
class PasswordEncoder:
    """Encrypts and decrypts passwords with one secret.

    Attributes:
        secret: of which the keys are derived.
        key_factory: such as PBKDF2WithHmacSHA512.
        cipher_algorithm: AES/CBC/PKCS5Padding or AES/GCM/NoPadding.
        key_bits: 128, 192 or 256.
        iterations: of PBKDF2.
    """

    secret: str = field(repr=False)
    key_factory: str = KEY_FACTORIES[0]
    cipher_algorithm: str = CBC
    key_bits: int = KEY_LENGTHS[0]
    iterations: int = 4096

    def encode(self, password: str) -> str:
        """Return the encrypted text of a password. Raises ValueError: the package `cryptography` is missing."""
        salt = os.urandom(SALT_BYTES)
        vector = os.urandom(GCM_IV_BYTES if self.cipher_algorithm == GCM else CBC_IV_BYTES)
        key = derive_key(self.secret, self.key_factory, salt, self.iterations, self.key_bits)
        fields = {
            "keyFactoryAlgorithm": self.key_factory,
            "cipherAlgorithm": self.cipher_algorithm,
            "keyLength": str(self.key_bits),
            "salt": _base64(salt),
            "iterations": str(self.iterations),
            "encryptedPassword": _base64(encrypt(self.cipher_algorithm, key, vector, password.encode())),
            "passwordLength": str(java_length(password)),
            "initializationVector": _base64(vector),
        }
        if self.cipher_algorithm == GCM:
            fields["authenticationTagLength"] = str(TAG_BITS)
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """Return the password of an encrypted text. Raises ValueError without a part of it."""
        if len(text) > TEXT_CHARACTERS_MAX:
            raise ValueError("the encrypted password is too long")
        fields = dict(each.strip().partition(":")[::2] for each in text.split(","))
        try:
            salt, data, vector = (
                b64decode(fields[name], validate=True) for name in ("salt", "encryptedPassword", "initializationVector")
            )
            iterations, bits, length = (int(fields[name]) for name in ("iterations", "keyLength", "passwordLength"))
            factory, cipher = fields["keyFactoryAlgorithm"], fields["cipherAlgorithm"]
        except (KeyError, ValueError, binascii.Error):
            raise ValueError("it is no encrypted password") from None
        check_algorithms(factory, cipher, bits, iterations)
        key = derive_key(self.secret, factory, salt, iterations, bits)
        password = decrypt(cipher, key, vector, data)
        if password is None or java_length(password) != length:
            raise ValueError(f"it cannot be decrypted with {ENCODER_SECRET}")
        return password


def check_algorithms(factory: str, cipher: str, bits: int, iterations: int) -> None:
    """Raise ValueError for algorithms and sizes that are not supported."""
    if factory not in KEY_FACTORIES or cipher not in (CBC, GCM) or bits not in KEY_LENGTHS:
        raise ValueError("its algorithms or its key length are not supported")
    if not 0 < iterations <= ITERATIONS_MAX:
        raise ValueError(f"it has {iterations} iterations, allowed are {ITERATIONS_MAX}")


def derive_key(secret: str, factory: str, salt: bytes, iterations: int, bits: int) -> bytes:
    """Return the key of a secret.

    Arguments:
        secret: the configured text.
        factory: Java's name of the function, such as PBKDF2WithHmacSHA512.
        salt, iterations: of PBKDF2.
        bits: length of the key.
    """
    digest = factory.removeprefix("PBKDF2WithHmac").lower()
    return hashlib.pbkdf2_hmac(digest, secret.encode(), salt, iterations, bits // 8)


def encrypt(cipher: str, key: bytes, vector: bytes, data: bytes) -> bytes:
    """Return encrypted data; with GCM the tag is at its end, as in Java.

    Arguments:
        cipher: Java's name.
        key, vector: of the cipher.
        data: to encrypt.

    Raises ValueError: the package `cryptography` is missing.
    """
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, aead, algorithms, modes
        from cryptography.hazmat.primitives.padding import PKCS7
    except ImportError:
        raise ValueError(MISSING) from None
    if cipher == GCM:
        return aead.AESGCM(key).encrypt(vector, data, None)
    padder, encryptor = PKCS7(BLOCK_BITS).padder(), Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
    return encryptor.update(padder.update(data) + padder.finalize()) + encryptor.finalize()


def decrypt(cipher: str, key: bytes, vector: bytes, data: bytes) -> str | None:
    """Return the text of encrypted data, None if the key is wrong; as `encrypt`."""
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers import Cipher, aead, algorithms, modes
        from cryptography.hazmat.primitives.padding import PKCS7
    except ImportError:
        raise ValueError(MISSING) from None
    try:
        if cipher == GCM:
            return aead.AESGCM(key).decrypt(vector, data, None).decode()
        unpadder, decryptor = PKCS7(BLOCK_BITS).unpadder(), Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
        padded = decryptor.update(data) + decryptor.finalize()
        return (unpadder.update(padded) + unpadder.finalize()).decode()
    except (InvalidTag, ValueError):  # wrong padding, wrong size, not UTF-8
        return None


def java_length(text: str) -> int:
    """Return the length of a text in Java: of UTF-16."""
    return len(text.encode("utf-16-le")) // 2


def _base64(data: bytes) -> str:
    return b64encode(data).decode()
