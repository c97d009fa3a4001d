"""Changes of many paths: what each was and what it is to be, as one blob that a change names."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from takeback.adapters.file.states import blobs_of
from takeback.errors import Corrupt
from takeback.model.change import Change
from takeback.model.remedy import Target
from takeback.model.resource import file_resource
from takeback.storage.protocols import Blobs

COMMAND, TREE = "command", "tree"
RUN, WATCH = "run", "watch"


def put_targets(blobs: Blobs, targets: Iterable[Target]) -> str:
    """The digest under which `read_targets` finds them again; what they name lives as long."""
    listed = list(targets)
    rows = [[target.resource, target.before, target.after] for target in listed]
    text = json.dumps(rows, separators=(",", ":"), sort_keys=True)
    return blobs.put(text.encode("ascii"), refs=contents(listed))


def read_targets(blobs: Blobs, digest: str) -> tuple[Target, ...]:
    try:
        rows: list[list[Any]] = json.loads(b"".join(blobs.read(digest)))
        return tuple(Target(resource, before, after) for resource, before, after in rows)
    except (ValueError, TypeError) as error:
        raise Corrupt(
            "A list of paths in the store is not readable.", hint="`takeback verify` shows the extent."
        ) from error


def contents(targets: Iterable[Target]) -> list[str]:
    """Every blob that the states name, each once."""
    needed: dict[str, None] = {}
    for target in targets:
        for state in (target.before, target.after):
            if "digest" in state:
                needed.update(dict.fromkeys(blobs_of(state)))
    needed.pop("", None)
    return list(needed)


def command_change(
    blobs: Blobs, cwd: str, summary: str, targets: Sequence[Target], args: dict[str, Any] | None = None
) -> Change:
    """What a command did, as a change that can be merged into the world and taken back."""
    more = dict(args or {}) | {"targets": put_targets(blobs, targets)}
    return Change(COMMAND, RUN, file_resource(cwd), summary, more)
