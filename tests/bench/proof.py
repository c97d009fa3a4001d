"""The journal as evidence: hashing every record again, anchoring and exporting it, beside SHA-256 of the same bytes."""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import takeback
from takeback.api import opened_of, proof
from takeback.audit import keys
from takeback.audit.export import BundleWish, export
from takeback.model.record import STORE, Draft, Kind
from takeback.storage.bodies import whole
from tests.bench.measure import Line, Table, Wishes

_DIGEST = "0123456789abcdef" * 4
_RESOURCE = "file:///home/you/project/src/app.py"
_AFTER = {"type": "file", "size": 1234, "mode": 420, "digest": _DIGEST}
_BODY = {  # about as long as the intent of a write
    "adapter": "file", "kind": "write", "resource": _RESOURCE, "summary": "write src/app.py (1,234 bytes)",
    "args": {"content": _DIGEST, "size": 1234},
    "remedy": {"adapter": "file", "blobs": [_DIGEST], "targets": [[_RESOURCE, {"type": "absent"}, _AFTER]]},
}  # fmt: skip


def measure(wishes: Wishes) -> Table:
    many = 5_000 if wishes.quick else 200_000
    place = Path(wishes.directory)
    key, store = os.fspath(place / "keys" / "audit.key"), os.fspath(place / "store")
    keys.make(key, store)
    with takeback.open(store) as tb:
        for start in range(0, many, 5_000):
            drafts = [Draft(Kind.CLIMB, STORE, "", _BODY | {"n": str(start + one)}) for one in range(5_000)]
            tb.store.journal.append(None, drafts)
        bodies = [whole(one) for (one,) in tb.store.read("SELECT body FROM records ORDER BY seq")]
        raw = _seconds(lambda: [hashlib.sha256(one).digest() for one in bodies])
        look = proof.check_anchors(opened_of(tb))
        verified = _seconds(lambda: proof.check_anchors(opened_of(tb)))
        anchored = _seconds(lambda: proof.anchor(opened_of(tb), f"file:{place / 'anchors'}", key=key))
        level = proof.proof_level(opened_of(tb), look)
        wish = BundleWish(os.fspath(place / "evidence"))
        exported = _seconds(lambda: export(tb.store, look, level, wish))
    program = [sys.executable, "-I", os.fspath(place / "evidence" / "verify.py")]
    checked = _seconds(lambda: subprocess.run(program, check=True, capture_output=True))
    what, against = f"{many:,} records, {sum(map(len, bodies)) / 1e6:.0f} MB", "SHA-256 of the same bodies"
    lines = (
        Line(f"{what}: audit verify", verified, "s", against, raw, None, "cost"),
        Line("  audit anchor", anchored, "s", against, raw, None, "cost"),
        Line("  audit export", exported, "s", against, raw, None, "cost"),
        Line("  verify.py of the bundle", checked, "s", against, raw, None, "cost"),
    )
    return Table("Proof", lines, ("export looks for secrets in every text of every record",))


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
