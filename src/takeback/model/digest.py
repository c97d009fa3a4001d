"""SHA-256 of little, without OpenSSL: to load it takes longer than all that a command which looks has to hash."""

try:
    from _sha2 import sha256  # pyright: ignore  # from Python 3.12 on
except ImportError:
    try:
        from _sha256 import sha256  # pyright: ignore
    except ImportError:
        from hashlib import sha256

_MUCH = 1 << 16  # bytes; OpenSSL is faster


def sha256_of(data: bytes) -> bytes:
    if len(data) < _MUCH:
        return sha256(data).digest()  # pyright: ignore
    import hashlib

    return hashlib.sha256(data).digest()
