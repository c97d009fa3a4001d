"""How long values are kept: the body of a record deflated, a long text in a blob."""

import json
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from takeback.errors import Refused
from takeback.model.record import Kind
from takeback.storage.protocols import Blobs, Journal

LONG = 64  # shorter bodies gain nothing
MOST = 128 << 20  # bytes of a body: nothing longer is written, and nothing longer is inflated
_SMALL = 4 << 10  # up to this length a small window sees everything, and costs a third of the time
_BRIEF = 800  # up to this length the first of nine levels finds nearly what the sixth does, in half the time

# Part of the format: every store needs exactly these bytes to be read. What is said most often stands last.
USUAL = (
    b'{"automatic":true,"cwd":"/home/","id":"","label":"after 10 effects"}{"agent":"","name":"undo ","on_conflict":'
    b'"refuse","on_death":"finish","undoing":[""]}"exact":false,"good_until":"","residue":"","needs":["","allow_inexact'
    b'":true,"parents":true,"partial":true,"replace":true,"target":"","args":{"mode":384},"args":{"files":[{"content":"'
    b'","resource":"file:///","size":1},"kind":"write_all","kind":"symlink","kind":"chmod","kind":"mkdir","owner_lost":'
    b'true,"xattrs":{"user."holes":[["held":"","left_out":"excluded":""holds":"{"adapter":"config","args":{"delete":['
    b'"],"format":"json","set":{"/"kind":"edit","reason":"snapshot: each key\'s earlier value is known, so it is taken '
    b'back by itself; the whole file is kept as well","payload":{"file":{"args":"format":"toml""format":"yaml","made":['
    b'],"places":[["",null]],"whole":["{"present":false,"type":"value"},{"present":true,"type":"value","value":true}'
    b'{"adapter":"file","args":{"to":"file:///"},"kind":"move","reason":"snapshot: a move is taken back by a move",'
    b'"payload":{"move":"there"},{"born":17,"identity":true,"reason":"snapshot: the earlier mode is written in the '
    b'journal","meta":true,"bytes":0,"content":","entries":,"gid":0,"manifest":"","mode":493,"mtime":17,"type":"dir",'
    b'"uid":0},{"type":"absent"}]],"kind":"delete","args":{"on_conflict":"refuse"},"key":"","kind":"undo","reason":'
    b'"snapshot: what is there now is kept, so that redo can bring it back","payload":{"undo":"","summary":"undo ",'
    b'"undoes":"{"adapter":"file","args":{"content":"0123456789abcdef","size":1},"key":"","kind":"write","reason":'
    b'"snapshot: the earlier state is kept in the store","remedy":{"adapter":"file","blobs":["","strategy":"snapshot",'
    b'"targets":[["file:///home/",{"type":"absent"},{"ctime":17,"dev":65024,"digest":"","gid":1000,"ino":1,"mode":420,'
    b'"mtime":17,"nlink":1,"size":1,"type":"file","uid":1000},{"gid":0,"mode":420,"type":"file","uid":0}]],"version":'
    b'1},"resource":"file:///home/","summary":"write /home/ (1,000 bytes)"}'
)


def shortened(body: bytes) -> str | bytes:
    """As it goes into the table: text is the body itself, bytes are deflated."""
    if len(body) < LONG:
        return body.decode()
    short = deflated(body)
    return short if len(short) < len(body) else body.decode()


def deflated(body: bytes) -> bytes:
    if len(body) > MOST:
        raise Refused(
            f"One record would take {len(body):,} bytes, and a journal takes at most {MOST:,}.",
            hint="Nothing was changed. Make a smaller change, or give less data to the call.",
        )
    if len(body) < LONG:
        # One block that is stored as it is, and the last: a quarter of the time.
        size = len(body)
        return bytes((1, size, 0, size ^ 0xFF, 0xFF)) + body
    # A copy has learned the dictionary already.
    machine = _machine(1 if len(body) <= _BRIEF else 6, len(body) <= _SMALL).copy()
    return machine.compress(body) + machine.flush()


@cache
def _machine(level: int, small: bool) -> Any:
    window, memory = (-12, 5) if small else (-15, 8)
    return zlib.compressobj(level, zlib.DEFLATED, window, memory, zlib.Z_DEFAULT_STRATEGY, USUAL)


def whole(kept: str | bytes) -> bytes:
    """The body as it was; ValueError if it cannot be decoded."""
    if isinstance(kept, str):
        return kept.encode("utf-8", "surrogateescape")
    machine = zlib.decompressobj(-15, zdict=USUAL)
    try:
        body = machine.decompress(kept, MOST + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(body) > MOST:
        raise ValueError(f"it would take more than {MOST:,} bytes")
    if not machine.eof or machine.unused_data:
        raise ValueError("it ends too early or too late")
    return body


def parsed(kept: str | bytes) -> dict[str, Any]:
    """The parsed body; ValueError if it is damaged, or not a JSON object that takeback wrote."""
    return read(whole(kept))


def read(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(said, dict):
        raise ValueError("it is not an object")
    return said  # pyright: ignore[reportUnknownVariableType]


# What an agent keeps in the journal, as text: short ones in the record, long ones in a blob, so that the same
# state again costs next to nothing.


LONG_TEXT = 1024  # characters; longer ones are blobs
_NAMED = ("state", "value")


def kept(blobs: Blobs, name: str, text: str, like: str) -> dict[str, Any]:
    """The part of a record's body that has it. `like` is what it is a version of."""
    if len(text) <= LONG_TEXT:
        return {name: text}
    return {name: {"blob": blobs.put(text.encode(), like=like)}}


def text_of(blobs: Blobs, said: "str | dict[str, str]") -> str:
    return said if isinstance(said, str) else b"".join(blobs.read(said["blob"])).decode()


def needed(journal: Journal) -> Iterator[str]:
    """The blobs of all that was kept so."""
    for record in journal.records(kinds=(Kind.CHECKPOINT, Kind.REMEMBER)):
        for name in _NAMED:
            said = record.body.get(name)
            if isinstance(said, dict) and "blob" in said:
                yield said["blob"]
