"""Encryption of confidential data that leave memory, with AES-GCM of the package cryptography.

The package is imported where it is used, since counts that stay in memory do not need it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
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
        subject: The data to be encrypted, in words.
    """
    if not can_encrypt():
        raise InputError(
            f"cannot store {subject}: the package cryptography is not installed. Install it with: "
            'pip install "fitplug[dask]"'
        )


class Cipher:
    """Encrypts messages under one key with random nonces, so that several processes may share it.

    NIST SP 800-38D allows 2^32 messages per key; two of so many have the same nonce with
    probability 2^-33.
    """

    def __init__(self, key: bytes) -> None:
        """Keep a key of 32 bytes.

        Raises:
            EncryptionMissingError: The package cryptography is not installed.
        """
        self._aes = _load_cipher(key)

    def encrypt(self, message: Any, context: bytes) -> bytes:
        """Encrypt a message of less than 2^31 bytes, and put its nonce in front.

        Args:
            message: The message, bytes or a buffer.
            context: A name of the message, which must be given again to decrypt it.
        """
        nonce = secrets.token_bytes(NONCE_BYTES)
        encrypted: bytes = self._aes.encrypt(nonce, message, context)
        return nonce + encrypted

    def decrypt(self, encrypted: bytes | memoryview, context: bytes) -> bytes:
        """Return the message; raise ValueError if it was changed or has another context."""
        from cryptography.exceptions import InvalidTag

        view = memoryview(encrypted)
        message: bytes | None = None
        if len(view) < NONCE_BYTES + TAG_BYTES:
            raise ValueError("the encrypted data are incomplete")
        with contextlib.suppress(InvalidTag):
            message = self._aes.decrypt(bytes(view[:NONCE_BYTES]), view[NONCE_BYTES:], context)
        if message is None:
            raise ValueError("the encrypted data were changed, or encrypted with another key")
        return message


_BLOCK_BYTES = 2**26
"""The most bytes that are encrypted at once; AES-GCM accepts fewer than 2^31."""


def encrypt_blocks(key: bytes, message: Any, context: bytes) -> Iterator[bytes]:
    """Encrypt a message of any length under a key of 32 bytes that several processes share.

    The message is cut into blocks. Each block's context contains its number and the number of
    blocks, so that no block can be left out, repeated or moved unnoticed.

    Raises:
        EncryptionMissingError: The package cryptography is not installed.
    """
    cipher, view = Cipher(key), memoryview(message)
    count = max(1, -(-len(view) // _BLOCK_BYTES))
    for i in range(count):
        block = view[i * _BLOCK_BYTES : (i + 1) * _BLOCK_BYTES]
        yield cipher.encrypt(block, _name_block(context, i, count))


def encrypt_long(key: bytes, message: Any, context: bytes) -> bytes:
    """Encrypt a message as `encrypt_blocks` does, and join the blocks."""
    return b"".join(encrypt_blocks(key, message, context))


def decrypt_long(key: bytes, encrypted: bytes | memoryview, context: bytes) -> bytes:
    """Return a message whose blocks `encrypt_blocks` encrypted.

    Raises:
        ValueError: It was changed, or has another context or key.
        EncryptionMissingError: The package cryptography is not installed.
    """
    cipher, view = Cipher(key), memoryview(encrypted)
    width = NONCE_BYTES + _BLOCK_BYTES + TAG_BYTES
    count = max(1, -(-len(view) // width))
    return b"".join(
        cipher.decrypt(view[i * width : (i + 1) * width], _name_block(context, i, count))
        for i in range(count)
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
