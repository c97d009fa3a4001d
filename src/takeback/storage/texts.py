"""What an agent keeps in the journal, as text: short ones in the record, long ones in a blob, so that the same state
again costs next to nothing."""

from collections.abc import Iterator
from typing import Any

from takeback.model.record import Kind
from takeback.storage.protocols import Blobs, Journal

LONG = 1024  # characters; longer ones are blobs
_NAMED = ("state", "value")


def kept(blobs: Blobs, name: str, text: str, like: str) -> dict[str, Any]:
    """The part of a record's body that has it. `like` is what it is a version of."""
    if len(text) <= LONG:
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
