"""Encryption: what confidential data are written under, with AES-GCM of the package cryptography.

The package is imported when it is used, since only counts that leave memory need it.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import Any

from fitplug.errors import InputError

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16


class EncryptionMissingError(Exception):
    """The package cryptography is not installed."""


def can_encrypt() -> bool:
    """Return whether the package cryptography is installed."""
    try:
        _load_cipher(bytes(KEY_BYTES))
    except EncryptionMissingError:
        return False
    return True


def check_encryption(subject: str) -> None:
    """Raise InputError if the package that encrypts is missing.

    Args:
        subject: What is to be kept encrypted, in words.
    """
    if not can_encrypt():
        raise InputError(
            f"cannot store {subject}: exact counts must be encrypted, and the package "
            'cryptography is not installed. Install it with: pip install "fitplug[dask]"'
        )


class Cipher:
    """Encrypts messages under one key; every message is numbered, and no number is used twice.

    A nonce of AES-GCM may serve one message only. The caller numbers the messages, and draws a
    key that no other cipher has; a key that outlives the process needs `RandomCipher`.
    """

    def __init__(self, key: bytes | None = None) -> None:
        """Keep a key of 32 bytes, which is drawn if it is None.

        Raises:
            EncryptionMissingError: The package cryptography is not installed.
        """
        self._aes = _load_cipher(secrets.token_bytes(KEY_BYTES) if key is None else key)

    def encrypt(self, number: int, message: Any, context: bytes) -> bytes:
        """Encrypt a message of less than 2^31 bytes.

        Args:
            number: The number of the message, from 0 to 2^96 - 1.
            message: The message, bytes or a buffer.
            context: What decryption must be given again, such as what the message is.

        Returns:
            The ciphertext, which is longer than the message by TAG_BYTES.
        """
        encrypted: bytes = self._aes.encrypt(number.to_bytes(NONCE_BYTES, "big"), message, context)
        return encrypted

    def decrypt(self, number: int, encrypted: Any, context: bytes) -> bytes:
        """Return the message. Raise ValueError if it was changed or is another one."""
        return _decrypt(self._aes, number.to_bytes(NONCE_BYTES, "big"), encrypted, context)


class RandomCipher:
    """Encrypts messages under one key with random nonces, so that several processes may share it.

    Among 2^32 messages two have the same nonce with probability 2^-33. That is the number that
    NIST SP 800-38D allows for a key.
    """

    def __init__(self, key: bytes) -> None:
        """Keep a key of 32 bytes.

        Raises:
            EncryptionMissingError: The package cryptography is not installed.
        """
        self._aes = _load_cipher(key)

    def encrypt(self, message: Any, context: bytes) -> bytes:
        """Encrypt a message, with its nonce before it."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        encrypted: bytes = self._aes.encrypt(nonce, message, context)
        return nonce + encrypted

    def decrypt(self, encrypted: bytes | memoryview, context: bytes) -> bytes:
        """Return the message. Raise ValueError if it was changed or is another one."""
        view = memoryview(encrypted)
        if len(view) < NONCE_BYTES + TAG_BYTES:
            raise ValueError("the encrypted data are incomplete")
        return _decrypt(self._aes, bytes(view[:NONCE_BYTES]), view[NONCE_BYTES:], context)


_LONG_BYTES = 2**28
"""The most bytes that are encrypted at once; AES-GCM takes fewer than 2^31."""


def encrypt_long(key: bytes, message: bytes, context: bytes) -> bytes:
    """Encrypt a message of any length under a key of 32 bytes that several processes share.

    The message is cut into blocks. The context of each says which block of how many it is, so that
    none can be left out, repeated or moved.

    Raises:
        EncryptionMissingError: The package cryptography is not installed.
    """
    cipher = RandomCipher(key)
    starts = range(0, max(1, len(message)), _LONG_BYTES)
    view = memoryview(message)
    return b"".join(
        cipher.encrypt(view[start : start + _LONG_BYTES], _name_block(context, i, len(starts)))
        for i, start in enumerate(starts)
    )


def decrypt_long(key: bytes, encrypted: bytes | memoryview, context: bytes) -> bytes:
    """Return a message that `encrypt_long` encrypted.

    Raises:
        ValueError: It was changed, or is another one, or of another key.
        EncryptionMissingError: The package cryptography is not installed.
    """
    cipher = RandomCipher(key)
    width = NONCE_BYTES + _LONG_BYTES + TAG_BYTES
    starts = range(0, max(1, len(encrypted)), width)
    view = memoryview(encrypted)
    return b"".join(
        cipher.decrypt(view[start : start + width], _name_block(context, i, len(starts)))
        for i, start in enumerate(starts)
    )


def _name_block(context: bytes, number: int, blocks: int) -> bytes:
    return context + f" block {number} of {blocks}".encode()


def _load_cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        missing = True
    else:
        missing = False
    if missing:
        raise EncryptionMissingError
    return AESGCM(key)


def _decrypt(aes: Any, nonce: bytes, encrypted: Any, context: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    message: bytes | None = None
    with contextlib.suppress(InvalidTag):
        message = aes.decrypt(nonce, encrypted, context)
    if message is None:
        raise ValueError("the encrypted data were changed or have another key")
    return message
