"""A bundle for an auditor: records, chain, anchors, answers and a verifier; the same bytes for the same journal."""

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

from takeback.audit import questions, verifier
from takeback.audit.anchors import AnchorCheck, ProofLevel, name_of
from takeback.audit.figures import ActivityFigures, figures
from takeback.audit.page import page
from takeback.audit.verifier import anchor_json, fingerprint
from takeback.audit.views import iso
from takeback.errors import Misuse, Refused, ResourceUnreachable
from takeback.model.record import HASH, Kind, canonical, covered
from takeback.policy.secrets import masked_json, may_hold_secret
from takeback.storage.bodies import whole
from takeback.storage.sqlite.check import page_of_records
from takeback.storage.store import Store

FORMAT = 1
SAMPLE = 25
README = """Evidence exported by takeback.

report.html     the auditor's questions, answered one by one, with plots
answers.json    the same for a program
records.jsonl   every record of the journal, a line each, with its hash
anchors.jsonl   signed statements of how far the journal had come, and when
blobs/          contents by digest, if they were exported
manifest.json   the SHA-256 of every file
verify.py       checks all of it: python3 verify.py --key YOUR-COPY.pub --anchors YOUR-COPY

The digest of manifest.json was printed at the export. Compare it with what verify.py prints.
"""


class Exported(NamedTuple):
    path: str
    records: int
    blobs: int
    digest: str  # of manifest.json: it names the bundle


class BundleWish(NamedTuple):
    path: str  # a directory, or a name that ends in .tar.gz
    with_content: bool = False
    seed: str = "1"


def export(store: Store, look: AnchorCheck, level: ProofLevel, wish: BundleWish) -> Exported:
    packed = wish.path.endswith((".tar.gz", ".tgz"))
    target = os.path.abspath(wish.path)
    if os.path.lexists(target):
        raise Refused(
            f"There is something at {wish.path} already.", hint="Choose another name; nothing is overwritten."
        )
    if target.startswith(os.path.realpath(store.path) + os.sep):
        raise Refused("A bundle cannot lie in the store.", hint="Choose a place outside.")
    staged = f"{target}.{os.getpid()}.part"
    with _cleared(staged):
        os.mkdir(staged, 0o700)
        blobs = _write(store, look, level, wish, staged)
        digest = _manifest(staged)
        if packed:
            _pack(staged, f"{staged}.tar.gz")
            os.rename(f"{staged}.tar.gz", target)
        else:
            os.rename(staged, target)
    return Exported(wish.path, look.chain.last, blobs, digest)


@contextmanager
def _cleared(staged: str) -> Iterator[None]:
    import shutil

    try:
        yield
    except OSError as error:
        raise ResourceUnreachable(
            f"The bundle could not be written: {error.strerror} ({error.filename}).",
            hint="Choose another place.",
        ) from None
    finally:
        shutil.rmtree(staged, ignore_errors=True)
        if os.path.lexists(f"{staged}.tar.gz"):
            os.unlink(f"{staged}.tar.gz")


def _write(store: Store, look: AnchorCheck, level: ProofLevel, wish: BundleWish, place: str) -> int:
    with _file(place, "records.jsonl") as file:
        for line in record_lines(store, look.chain.last, wish.with_content):
            file.write(line)
    sound = look.judgement.sound
    with _file(place, "anchors.jsonl") as file:
        for anchor in sound:
            file.write(json.dumps(anchor_json(anchor), sort_keys=True).encode() + b"\n")
    blobs = _blobs(store, place) if wish.with_content else 0
    found = figures(store.journal.records())
    answers: dict[str, Any] = masked_json(answered(store, look, level, found, wish.seed))
    about = {
        "format": FORMAT, "name": name_of(store), "first": look.chain.first, "records": look.chain.last,
        "at": look.chain.at, "with_content": wish.with_content,
    }  # fmt: skip
    with open(verifier.__file__, "rb") as source:
        program = source.read()
    for name, data in (
        ("bundle.json", _pretty(about)),
        ("answers.json", _pretty(answers)),
        ("report.html", page(answers, found).encode()),
        ("README.txt", README.encode()),
        ("verify.py", program),
    ):
        with _file(place, name) as file:
            file.write(data)
    return blobs


@contextmanager
def _file(place: str, name: str) -> Iterator[IO[bytes]]:
    path = os.path.join(place, name)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(path, "xb") as file:
        os.fchmod(file.fileno(), 0o600)
        yield file


def _pretty(data: Any) -> bytes:
    return json.dumps(data, indent=1, sort_keys=True).encode() + b"\n"


def record_lines(store: Store, last: int, with_content: bool) -> Iterator[bytes]:
    """The records as they were hashed. A body that is not as takeback writes it goes along as bytes."""
    seq = 0
    while rows := page_of_records(store.database, seq):
        for row in rows:
            seq = row[0]
            if seq > last:
                return
            if len(row) == 1:
                continue  # the verifier says that it is missing
            _, kind, run, effect, at, kept, sealed = row
            told: dict[str, Any] = {"seq": seq, "kind": kind, "run": run, "effect": effect, "at": at}
            told["hash"] = sealed[:HASH].hex()
            told |= _body(kept, bytes(sealed[HASH:]), with_content)
            yield json.dumps(told, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def _body(kept: str | bytes, seal: bytes, with_content: bool) -> dict[str, Any]:
    """As it was hashed. One with a secret in it stays here: the bundle has it masked, and what the chain covers."""
    told: dict[str, Any] = {"seal": seal.hex()} if seal else {}
    try:
        raw = whole(kept)
    except ValueError:
        return told | {"raw": base64.b64encode(kept if isinstance(kept, bytes) else kept.encode()).decode()}
    try:
        body = json.loads(raw)
        shown = masked_json(body) if may_hold_secret(raw.decode("utf-8", "replace")) else body
        if shown != body and not with_content:
            return {"masked": shown} | ({"commitment": covered(seal, raw).hex()} if seal else {})
        if canonical(body) == raw:
            return told | {"body": body}
    except (ValueError, RecursionError, Misuse):
        pass
    return told | {"raw": base64.b64encode(raw).decode()}


def _blobs(store: Store, place: str) -> int:
    count = 0
    for info in sorted(store.blobs.info()):
        with _file(place, os.path.join("blobs", info.digest[:2], info.digest)) as file:
            for piece in store.blobs.read(info.digest):
                file.write(piece)
        count += 1
    return count


def _manifest(place: str) -> str:
    files: dict[str, str] = {}
    for directory, _, names in os.walk(place):
        for name in names:
            path = os.path.join(directory, name)
            with open(path, "rb") as file:
                files[os.path.relpath(path, place)] = hashlib.file_digest(file, "sha256").hexdigest()
    data = _pretty({"files": files})
    with _file(place, "manifest.json") as file:
        file.write(data)
    return hashlib.sha256(data).hexdigest()


def _pack(place: str, target: str) -> None:
    """Names in order, no times and no owners, so that the same journal gives the same bytes."""
    import gzip
    import tarfile

    name = "takeback-evidence"

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.mtime, info.uid, info.gid, info.uname, info.gname = 0, 0, 0, "", ""
        info.mode = 0o755 if info.isdir() else 0o644
        return info

    with (
        open(target, "xb") as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        archive.add(place, name, recursive=False, filter=plain)
        for directory, below, names in os.walk(place):
            below.sort()
            for one in sorted((*below, *names)):
                path = os.path.join(directory, one)
                archive.add(
                    path, os.path.join(name, os.path.relpath(path, place)), recursive=False, filter=plain
                )


# The answers.


def answered(
    store: Store, look: AnchorCheck, level: ProofLevel, found: ActivityFigures, seed: str
) -> dict[str, Any]:
    needed, kept = questions.approvals(store), questions.retention(store)
    chosen = questions.sample(store, SAMPLE, seed)
    oldest = iso(kept.oldest)
    given_up = [
        *sorted(kept.forgotten.items()),
        ("drops erased", kept.erased),
        ("contents redacted", kept.redacted),
    ]
    return {
        "about": {
            "name": name_of(store),
            "records": look.chain.last,
            "from": oldest,
            "to": iso(look.chain.at),
        },
        "states": {name: count for name, count in sorted(store.journal.tally().items()) if name != "records"},
        "approvals": {
            "needed": needed.needed,
            "ran": needed.ran,
            "exceptions": [questions.story_json(one) for one in needed.exceptions],
        },
        "undone": [questions.undo_json(one) for one in questions.undone(store)],
        "unknown": [questions.story_json(one) for one in questions.unknown(store)],
        "proof": proof_json(look, level),
        "policies": questions.as_of(questions.of_store(store, Kind.POLICY)),
        "agents": [list(one) for one in found.agents],
        "retention": {
            "oldest": oldest,
            "days": kept.days,
            "given_up": [[name, count] for name, count in given_up if count],
        },
        "sample": [questions.story_json(one) for one in chosen],
        "seed": seed,
        "rehearsals": questions.as_of(questions.of_store(store, Kind.REHEARSE)),
        "break_glass": [one._asdict() | {"at": iso(one.at)} for one in questions.break_glass(store)],
    }


def proof_json(look: AnchorCheck, level: ProofLevel) -> dict[str, Any]:
    return {
        "sound": look.sound,
        "findings": [one.text for one in look.judgement.findings],
        "notes": [*look.judgement.notes, *((look.stamp_words,) if look.stamp_words else ())],
        "level": level.level,
        "words": level.words,
        "weaknesses": list(level.weaknesses),
        "key": {
            "path": level.key.path,
            "fingerprint": fingerprint(level.key.key),
            "agent_reads": level.key.agent_reads,
        },
        "anchored": level.anchored,
        "unanchored": level.unanchored,
        "last_anchor": iso(level.last_anchor),
        "anchors": [[one.number, iso(one.at), one.seq, fingerprint(one.key)] for one in look.judgement.sound],
        "places": [
            {
                "place": one.place,
                "anchors": one.anchors,
                "agent_changes": one.agent_changes,
                "trouble": one.trouble or None,
            }
            for one in level.places
        ],
    }
