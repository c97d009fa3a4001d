"""Large blobs in an object store: S3 and whatever speaks like it."""

import os
from collections.abc import Sequence
from typing import Any

from takeback.errors import Misuse, ResourceUnreachable
from takeback.model.extras import install_hint

_HINT = (
    "Check the bucket and the rights: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, and AWS_ENDPOINT_URL for"
    " one that is not Amazon's."
)


def check_place(url: str) -> None:
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    if not url.startswith("s3://") or not bucket or "?" in url or "@" in bucket or ".." in prefix:
        raise Misuse(f"{url!r} is no place for blobs.", hint="Give s3://bucket/prefix.")


class ObjectStore:
    def __init__(self, url: str) -> None:
        check_place(url)
        self._url = url
        self._obstore = _library()
        options: dict[str, Any] = {}
        if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://"):
            options["client_options"] = {"allow_http": True}
        self._store = _s3().S3Store.from_url(url, **options)

    def put(self, name: str, data: bytes) -> None:
        """Read back: what cannot be read is not kept."""
        try:
            self._obstore.put(self._store, name, data)
            there = self._obstore.head(self._store, name)["size"]
        except Exception as error:
            raise self._unreachable("written", error) from error
        if there != len(data):
            raise ResourceUnreachable(f"{self._url} did not keep what was written to it.", hint=_HINT)

    def get(self, name: str, start: int = 0, length: int = 0) -> bytes:
        try:
            if length:
                return bytes(self._obstore.get_range(self._store, name, start=start, length=length))
            return bytes(self._obstore.get(self._store, name).bytes())
        except FileNotFoundError:
            raise
        except Exception as error:
            raise self._unreachable("read", error) from error

    def delete(self, names: Sequence[str]) -> None:
        try:
            self._obstore.delete(self._store, list(names))
        except FileNotFoundError:
            return
        except Exception as error:
            raise self._unreachable("swept", error) from error

    def _unreachable(self, doing: str, error: Exception) -> ResourceUnreachable:
        said = str(error).strip().partition("\n")[0][:200]
        return ResourceUnreachable(f"{self._url} cannot be {doing}: {said}", hint=_HINT)


def _s3() -> Any:
    from obstore import store

    return store


def _library() -> Any:
    try:
        import obstore
    except ImportError:
        raise Misuse("Blobs in an object store need takeback[s3].", hint=install_hint("s3")) from None
    return obstore
