"""Time stamps of a service (RFC 3161): the request as DER, and what is wrong with an answer."""

from takeback.errors import DidNotHappen, Misuse, ServerUnreachable

_SHA256 = bytes.fromhex("300d06096086480165030402010500")  # the algorithm, as DER
_MOST = 1 << 20
_SECONDS = 20


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def _whole(number: int) -> bytes:
    return _der(2, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def request(digest: str, nonce: int) -> bytes:
    """For the SHA-256 of something, with the certificate of the service in the answer."""
    imprint = _der(0x30, _SHA256 + _der(4, bytes.fromhex(digest)))
    return _der(0x30, _whole(1) + imprint + _whole(nonce) + _der(1, b"\xff"))


def refused(answer: bytes) -> str:
    """Why the service gave no stamp; "" if it did. Whether the stamp is good says `stamp_fits`."""
    try:
        inside = _content(_content(answer, 0x30), 0x30)
        status = int.from_bytes(_content(inside, 2), "big")
    except ValueError:
        return "its answer is no answer of a time-stamp service"
    return "" if status in (0, 1) else f"it refused (status {status})"


def _content(data: bytes, tag: int) -> bytes:
    if len(data) < 2 or data[0] != tag:
        raise ValueError("another tag")
    size, start = data[1], 2
    if size & 0x80:
        start = 2 + (size & 0x7F)
        size = int.from_bytes(data[2:start], "big")
    if len(data) < start + size:
        raise ValueError("too short")
    return data[start : start + size]


def stamped(url: str, digest: str) -> bytes:
    """The answer of the service, as it is."""
    import secrets
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import ProxyHandler, Request, build_opener

    if not url.startswith(("http://", "https://")):
        raise Misuse(
            f"{url!r} is no address of a time-stamp service.", hint="For example tsa:http://tsa.example/."
        )
    query = request(digest, secrets.randbits(63))
    asked = Request(url, query, {"Content-Type": "application/timestamp-query"})
    try:
        with build_opener(ProxyHandler()).open(asked, timeout=_SECONDS) as answer:
            told = answer.read(_MOST)
    except HTTPError as error:
        raise DidNotHappen(
            f"The time-stamp service {url} answered {error.code}.", hint="Check its address."
        ) from None
    except (OSError, HTTPException, ValueError) as error:
        raise ServerUnreachable(
            f"The time-stamp service {url} cannot be reached: {error}.", hint="Try again."
        ) from None
    if why := refused(told):
        raise DidNotHappen(f"The time-stamp service {url} gave no stamp: {why}.", hint="Check its address.")
    return told
