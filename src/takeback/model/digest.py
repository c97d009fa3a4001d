"""SHA-256 of little, without OpenSSL: to load it takes longer than all that a command which looks has to hash."""

import sys
from collections.abc import Callable
from typing import Any

_sha256: Callable[[bytes], Any]
try:  # as `random` does it
    _sha256 = __import__("_sha2" if sys.version_info >= (3, 12) else "_sha256").sha256
except ImportError:
    from hashlib import sha256 as _sha256

_MUCH = 1 << 16  # bytes; OpenSSL is faster


def sha256_of(data: bytes) -> bytes:
    if len(data) < _MUCH:
        return _sha256(data).digest()
    import hashlib

    return hashlib.sha256(data).digest()
