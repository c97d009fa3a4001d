"""What is inside a directory, one JSON line an entry, so that ten thousand files make one small journal record.

A row is `[type, path, mode, uid, gid, mtime, size|rdev|target, digest, extra]`, or `["link", path, first]` for
a further name of a file listed before. Directories come before what is in them, and the entries of one directory
stand together.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from takeback.storage.protocols import Blobs

Row = list[Any]

TYPE, PATH, MODE, UID, GID, MTIME, WHAT, DIGEST, EXTRA = range(9)
FIRST = 2  # of a link row: the path of the name listed first


def extra(row: Row) -> dict[str, Any]:
    return row[EXTRA] if len(row) > EXTRA else {}


def encoded(rows: Iterable[Row]) -> bytes:
    lines = [_line(row) for row in rows]
    return "\n".join(lines).encode("ascii")


def _line(row: Row) -> str:
    # By hand, because ten thousand calls of json.dumps cost more than reading the files; paths are percent-quoted.
    if row[TYPE] == "link":
        return f'["link","{row[PATH]}","{row[FIRST]}"]'
    kind, path, mode, uid, gid, mtime, what, digest = row[:EXTRA]
    third = f'"{what}"' if type(what) is str else what
    tail = "," + json.dumps(row[EXTRA], sort_keys=True, separators=(",", ":")) if len(row) > EXTRA else ""
    return f'["{kind}","{path}",{mode},{uid},{gid},{mtime},{third},"{digest}"{tail}]'


def read_manifest(blobs: Blobs, digest: str) -> list[Row]:
    text = b"".join(blobs.read(digest)).decode("ascii")
    return json.loads(f"[{text.replace(chr(10), ',')}]")


def content_digest(rows: Iterable[Row], owners: bool) -> str:
    """Names what is in the directory, times aside; what was excluded does not count."""
    sum = hashlib.sha256()
    between = ""
    for line in _counted(rows, owners):
        sum.update(f"{between}{line}".encode("ascii"))
        between = "\n"
    return sum.hexdigest()


def _counted(rows: Iterable[Row], owners: bool) -> Iterator[str]:
    for row in rows:
        if row[TYPE] == "link":
            yield f"link {row[PATH]} {row[FIRST]}"
            continue
        more = extra(row)
        if "excluded" in more:
            continue
        owner = f"{row[UID]} {row[GID]}" if owners else ""
        xattrs = json.dumps(more["xattrs"], sort_keys=True) if "xattrs" in more else ""
        yield f"{row[TYPE]} {row[PATH]} {row[MODE]} {owner} {row[WHAT]} {row[DIGEST]} {xattrs}"


def blobs_in(rows: Iterable[Row]) -> list[str]:
    """Everything the entries need, each once."""
    needed: dict[str, None] = {}
    for row in rows:
        if row[TYPE] == "file" and row[DIGEST]:
            needed[row[DIGEST]] = None
            holes = extra(row).get("holes")
            if isinstance(holes, str):
                needed[holes] = None
    return list(needed)
