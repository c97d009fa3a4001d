"""Check evidence that `takeback audit export` wrote: the chain of its records, the anchors, the signatures, the files.

`takeback audit export` copies this file into every bundle as verify.py. It needs Python 3.9 or newer and nothing
else; with the program `openssl` it checks time stamps too. takeback itself judges anchors with the same functions.

    python3 verify.py [BUNDLE] [--key PUBLIC.pem]... [--anchors FILE]... [--tsa-ca CA.pem]

The key and the anchors inside a bundle came with the bundle. Give your own copies: only those prove anything against
the person who made the bundle. Exit code: 0 sound, 6 damaged, 2 usage.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

GENESIS = bytes(32)
MARK = "takeback-anchor "  # before an anchor in a log of lines that are not all ours
VERSION = 1


# Records.


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def chained(previous: bytes, record: Mapping[str, Any], covered: bytes) -> bytes:
    """The hash of a record; it covers every record before it."""
    head = "{seq} {at} {kind} {run} {effect}\n".format(**record).encode()
    return hashlib.sha256(previous + head + covered).digest()


def covered(record: Mapping[str, Any]) -> bytes | None:
    """What the chain covers of the body: the hash of it and of a random seal, or in old records itself. None: it is
    gone, and its hash cannot be computed again."""
    seal = bytes.fromhex(record.get("seal", ""))
    if "commitment" in record:  # the body was left out of the bundle
        return bytes.fromhex(record["commitment"])
    if len(seal) == 32:  # the body was erased
        return seal
    if len(seal) == 1 or "masked" in record:
        return None
    body = base64.b64decode(record["raw"]) if "raw" in record else canonical(record["body"])
    return hashlib.sha256(seal + body).digest() if seal else body


class ChainLook(NamedTuple):
    """What the records themselves say, hashed again."""

    first: str  # the hash of the first record: it names the chain
    last: int  # number of the newest record
    at: int  # when that one was written
    hashes: Mapping[int, str]  # of the records that anchors name
    flaws: Sequence[Misfit]
    head: str = ""  # the hash of the newest record
    taken: int = 0  # records of which the hash was taken as it is, because their body is gone or left out
    masked: int = 0  # records that came without their body, which holds a secret


class Misfit(NamedTuple):
    what: str
    seq: int  # the first record that does not fit; 0: of an anchor, or of all
    text: str


def looked_at(records: Iterable[Mapping[str, Any]], wanted: Iterable[int]) -> ChainLook:
    needed, hashes, flaws = set(wanted), dict[int, str](), list[Misfit]()
    erased, told = set[int](), set[int]()
    previous, seq, at, first, taken, masked = GENESIS, 0, 0, "", 0, 0
    for record in records:
        if record["seq"] != seq + 1:
            flaws.append(gap(seq, record["seq"]))
        seq, at = record["seq"], record["at"]
        stored, of_body = bytes.fromhex(record["hash"]), covered(record)
        taken += of_body is None
        masked += "masked" in record
        if "commitment" in record and not {"body", "raw"}.isdisjoint(record):
            flaws.append(Misfit("changed", seq, f"Record {seq} has a body that the chain does not cover."))
        if of_body is not None and chained(previous, record, of_body) != stored:
            flaws.append(misfit(seq, record["kind"], record["effect"] or record["run"]))
        if len(record.get("seal", "")) in (2, 64):
            erased.add(seq)
        if record["kind"] == "redact":
            told.update(one["seq"] for one in record.get("body", {}).get("records", ()))
        previous, first = stored, first or record["hash"]
        if seq in needed:
            hashes[seq] = record["hash"]
    flaws += [
        Misfit("erased", one, f"Record {one} was erased, and no record says so.")
        for one in sorted(erased - told)
    ]
    return ChainLook(first, seq, at, hashes, flaws, previous.hex(), taken, masked)


def gap(before: int, after: int) -> Misfit:
    if after <= before:
        return Misfit("reordered", after, f"Record {after} stands after record {before}.")
    missing = f"Record {before + 1} is" if after == before + 2 else f"Records {before + 1} to {after - 1} are"
    return Misfit("removed", before + 1, f"{missing} missing.")


def misfit(seq: int, kind: str, about: str) -> Misfit:
    return Misfit("changed", seq, f"Record {seq} ({kind} of {about}) was changed: its hash does not fit.")


# Anchors.


class Anchor(NamedTuple):
    """A signed statement: at this time the journal had so many records, and the newest had this hash."""

    store: str  # the hash of the first record
    name: str  # machine and address of the store
    number: int  # of the anchors of this store, from 1
    previous: str  # the digest of the anchor before it; "" for the first
    seq: int
    hash: str
    at: int  # when it was signed, microseconds since 1970
    key: str  # the public key, in hex
    signature: str = ""
    stamps: tuple[tuple[str, str], ...] = ()  # time-stamp services, and what each answered, in base64


_SIGNED = ("store", "name", "number", "previous", "seq", "hash", "at", "key")


def signed_bytes(anchor: Anchor) -> bytes:
    stated: dict[str, Any] = {name: getattr(anchor, name) for name in _SIGNED}
    return canonical({"takeback": f"anchor {VERSION}", **stated})


def digest_of(anchor: Anchor) -> str:
    """Names it; a time stamp is for this."""
    return hashlib.sha256(signed_bytes(anchor) + b"\n" + anchor.signature.encode()).hexdigest()


def anchor_json(anchor: Anchor) -> dict[str, Any]:
    told = anchor._asdict()
    return {**told, "takeback": f"anchor {VERSION}", "stamps": [list(one) for one in anchor.stamps]}


def anchor_from(told: Any) -> Anchor:
    """ValueError unless it is one."""
    if not isinstance(told, dict) or told.get("takeback") != f"anchor {VERSION}":  # pyright: ignore[reportUnknownMemberType]
        raise ValueError("it is no anchor")
    fields: dict[str, Any] = {name: told.get(name) for name in (*_SIGNED, "signature")}  # pyright: ignore[reportUnknownMemberType]
    for name, value in fields.items():
        if type(value) is not (int if name in ("number", "seq", "at") else str):
            raise ValueError(f"its {name} is missing or wrong")
    return Anchor(**fields, stamps=_stamps_from(told.get("stamps", [])))  # pyright: ignore[reportUnknownMemberType]


def _stamps_from(told: Any) -> tuple[tuple[str, str], ...]:
    if type(told) is not list:
        raise ValueError("its time stamps are no list")
    pairs: list[list[str]] = told  # pyright: ignore[reportUnknownVariableType]
    if not all(type(one) is list and [type(part) for part in one] == [str, str] for one in pairs):
        raise ValueError("a time stamp of it is no pair of texts")
    return tuple((one[0], one[1]) for one in pairs)


class Listed(NamedTuple):
    """The anchors found in one place."""

    place: str
    anchors: tuple[Anchor, ...]
    unreadable: tuple[str, ...] = ()  # lines that should be anchors and are not


def listed(place: str, text: str, every_line: bool = True) -> Listed:
    """`every_line`: it is a list of ours; else ours stand between other lines, behind a mark."""
    anchors, unreadable = list[Anchor](), list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        at = line.find(MARK)
        if at < 0 and (not every_line or not line.strip()):
            continue
        try:
            anchors.append(anchor_from(json.loads(line[at + len(MARK) :] if at >= 0 else line)))
        except ValueError as error:
            unreadable.append(f"Line {number} of {place} is no anchor: {error}.")
    return Listed(place, tuple(anchors), tuple(unreadable))


class Judgement(NamedTuple):
    findings: tuple[Misfit, ...]
    sound: tuple[Anchor, ...]  # that fit, oldest first
    notes: tuple[str, ...]  # what could not be checked


def when(at: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at // 1_000_000))


def fingerprint(key: str) -> str:
    return hashlib.sha256(bytes.fromhex(key)).hexdigest()[:16] if key else "none"


def judged(
    chain: ChainLook,
    places: Sequence[Listed],
    name: str,
    trusted: Sequence[str],
    is_signed: Callable[[Anchor], bool] | None = None,
) -> Judgement:
    """The records against the anchors of all places. `trusted`: public keys that someone vouches for, in hex."""
    findings: list[Misfit] = [*chain.flaws]
    notes: list[str] = []
    ours: dict[str, tuple[Anchor, str]] = {}
    for place in places:
        notes += place.unreadable  # what was lost with it is missing in the numbers of the others
        mine = [one for one in place.anchors if chain.first == one.store or name == one.name]
        if place.anchors and not mine:
            findings.append(_of_another(chain, place))
        for anchor in mine:
            known = ours.get(digest_of(anchor))
            if known is None or len(anchor.stamps) > len(known[0].stamps):
                ours[digest_of(anchor)] = (anchor, known[1] if known else place.place)
    found = sorted(ours.values(), key=lambda one: (one[0].number, one[0].at))
    genuine = [one for one in found if (is_signed or signature_fits)(one[0])]
    findings += [_forged(anchor, place) for anchor, place in found if (anchor, place) not in genuine]
    findings += _about_keys(genuine, trusted, notes)
    signed = [one for one in genuine if not trusted or one[0].key in trusted]
    findings += _about_the_list([anchor for anchor, _ in signed], notes)
    sound: list[Anchor] = []
    wrong: list[Misfit] = []
    for anchor, place in sorted(signed, key=lambda one: (one[0].seq, one[0].number)):
        problem = _against(chain, anchor, place, sound[-1] if sound else None)
        if problem:
            wrong.append(problem)
        else:
            sound.append(anchor)
    findings += _once(wrong)
    return Judgement(tuple(findings), tuple(sound), tuple(notes))


def _once(wrong: list[Misfit]) -> list[Misfit]:
    """The first rewritten record tells it, and the furthest cut."""
    rewritten = [one for one in wrong if one.what == "rewritten"]
    cut = [one for one in wrong if one.what == "cut"]
    return rewritten[:1] + cut[-1:]


def _of_another(chain: ChainLook, place: Listed) -> Misfit:
    other = place.anchors[-1]
    return Misfit(
        "rewritten",
        1,
        f"No anchor in {place.place} is of this journal: they are of one whose first record has the hash "
        f"{other.store[:16]}, and here that is {chain.first[:16] or 'missing'}. It was rewritten from its first record "
        "on, or this is another store.",
    )


def _told(anchor: Anchor, place: str) -> str:
    return f"Anchor {anchor.number} in {place} (record {anchor.seq}, {when(anchor.at)})"


def _forged(anchor: Anchor, place: str) -> Misfit:
    return Misfit(
        "forged", 0, f"{_told(anchor, place)} is forged or was changed: its signature does not fit."
    )


def _about_keys(
    found: Sequence[tuple[Anchor, str]], trusted: Sequence[str], notes: list[str]
) -> Iterator[Misfit]:
    keys: list[str] = []
    for anchor, place in found:
        what = _told(anchor, place)
        if trusted and anchor.key not in trusted:
            other = fingerprint(anchor.key)
            yield Misfit(
                "foreign key", 0, f"{what} is signed with the key {other}, which no one vouches for."
            )
        elif anchor.key not in keys:
            keys.append(anchor.key)
            if len(keys) > 1 and not trusted:
                said = f"{fingerprint(anchor.key)}, and those before it with {fingerprint(keys[0])}"
                yield Misfit(
                    "foreign key", 0, f"{what} is signed with the key {said}. Say which are yours: --key."
                )
    if keys and not trusted:
        notes.append(
            f"No one vouches for the key {fingerprint(keys[0])}: a person who replaced the anchors could replace it. "
            "Give your own copy of the public key with --key."
        )


def _about_the_list(anchors: Sequence[Anchor], notes: list[str]) -> Iterator[Misfit]:
    for at in range(1, len(anchors)):
        one, other = anchors[at - 1], anchors[at]
        if one.number == other.number:
            both = f"of {when(one.at)} and of {when(other.at)}"
            yield Misfit("forged", 0, f"There are two anchors {one.number}, {both}: the list was forked.")
        elif other.number > one.number + 1:
            gone = (
                f"Anchor {one.number + 1} is"
                if other.number == one.number + 2
                else (f"Anchors {one.number + 1} to {other.number - 1} are")
            )
            yield Misfit("anchor removed", 0, f"{gone} missing everywhere; {other.number} is there.")
        elif other.previous != digest_of(one):
            yield Misfit(
                "forged",
                0,
                f"Anchor {other.number} does not follow anchor {one.number}, which was exchanged.",
            )
        elif other.seq < one.seq:
            yield Misfit(
                "rolled back",
                other.seq + 1,
                (
                    f"Anchor {other.number} knows {other.seq} records, and anchor {one.number} before it {one.seq}: "
                    f"the journal was rolled back before {when(other.at)}."
                ),
            )
    if anchors and anchors[0].number > 1:
        notes.append(f"The anchors before {anchors[0].number} were not given.")


def _against(chain: ChainLook, anchor: Anchor, place: str, before: Anchor | None) -> Misfit | None:
    since = f"anchor {before.number} (record {before.seq}, {when(before.at)})" if before else ""
    if anchor.seq > chain.last:
        ends = (
            f"and the journal ends with record {chain.last} of {when(chain.at)}"
            if chain.last
            else "and the journal is empty"
        )
        return Misfit(
            "cut",
            chain.last + 1,
            (
                f"The journal was cut or rolled back: anchor {anchor.number} of {when(anchor.at)} in {place} knows "
                f"{anchor.seq} records, {ends}. {anchor.seq - chain.last} are missing."
            ),
        )
    if chain.hashes.get(anchor.seq) == anchor.hash:
        return None
    first = before.seq + 1 if before else 1
    where = f"The last anchor that fits is {since}." if since else "No anchor before it fits."
    return Misfit(
        "rewritten",
        first,
        (
            f"Records {first} to {anchor.seq} were rewritten, some or all of them: record {anchor.seq} has not the "
            f"hash that anchor {anchor.number} of {when(anchor.at)} in {place} signed. {where}"
        ),
    )


# Ed25519 (RFC 8032), verification only.

_P = 2**255 - 19
_L = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)
_Point = tuple[int, int, int, int]


def _added(a: _Point, b: _Point) -> _Point:
    one, two = (a[1] - a[0]) * (b[1] - b[0]) % _P, (a[1] + a[0]) * (b[1] + b[0]) % _P
    three, four = 2 * a[3] * b[3] * _D % _P, 2 * a[2] * b[2] % _P
    e, f, g, h = two - one, four - three, four + three, two + one
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(number: int, point: _Point) -> _Point:
    total = (0, 1, 1, 0)
    while number:
        if number & 1:
            total = _added(total, point)
        point, number = _added(point, point), number >> 1
    return total


def _point(data: bytes) -> _Point | None:
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & ((1 << 255) - 1)
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, _P - 2, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT % _P
    if (x * x - square) % _P or (not x and sign):
        return None
    x = _P - x if x & 1 != sign else x
    return x, y, 1, x * y % _P


def fits(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether this signature is of the holder of that public key."""
    if len(key) != 32 or len(signature) != 64:
        return False
    a, r, s = _point(key), _point(signature[:32]), int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= _L:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % _L
    generator = _point(bytes([0x58]) + bytes([0x66]) * 31)
    assert generator
    one, two = _times(s, generator), _added(r, _times(h, a))
    return not ((one[0] * two[2] - two[0] * one[2]) % _P or (one[1] * two[2] - two[1] * one[2]) % _P)


def signature_fits(anchor: Anchor) -> bool:
    try:
        return fits(bytes.fromhex(anchor.key), signed_bytes(anchor), bytes.fromhex(anchor.signature))
    except ValueError:
        return False


_PUBLIC = bytes.fromhex(
    "302a300506032b6570032100"
)  # what stands before the 32 bytes of an Ed25519 key (RFC 8410)


def public_key(text: str) -> str:
    """In hex, of a PEM file, `ed25519:` and base64, or hex itself; ValueError if it is none."""
    lines = [line.strip() for line in text.strip().splitlines()]
    if len(lines) == 1 and len(lines[0]) == 64:
        return bytes.fromhex(lines[0]).hex()
    if len(lines) == 1 and lines[0].startswith("ed25519:"):
        raw = base64.b64decode(lines[0][8:])
        if len(raw) != 32:
            raise ValueError("it is no Ed25519 key")
        return raw.hex()
    if not lines or lines[0] != "-----BEGIN PUBLIC KEY-----":
        raise ValueError("it is no public key in PEM")
    data = base64.b64decode("".join(lines[1:-1]))
    if not data.startswith(_PUBLIC) or len(data) != len(_PUBLIC) + 32:
        raise ValueError("it is no Ed25519 key")
    return data[len(_PUBLIC) :].hex()


# Time stamps (RFC 3161), by openssl.


def stamp_fits(digest: str, answer: bytes, authority: str) -> str | None:
    """ "" if the service has signed that it saw this digest; else why not. None: there is no openssl to ask."""
    import shutil
    import subprocess
    import tempfile

    program = shutil.which("openssl")
    if program is None:
        return None
    with tempfile.NamedTemporaryFile() as file:
        file.write(answer)
        file.flush()
        done = subprocess.run(
            [program, "ts", "-verify", "-digest", digest, "-in", file.name, "-CAfile", authority],
            capture_output=True, text=True, check=False, timeout=60,
            env={"PATH": "/usr/bin:/bin", "OPENSSL_CONF": "/dev/null"},
        )  # fmt: skip
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["openssl refuses it"])[-1]


# A bundle.


def _records(bundle: str) -> Iterator[dict[str, Any]]:
    with open(os.path.join(bundle, "records.jsonl"), encoding="utf-8") as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


_WHOLE = 4 << 20  # bytes; larger contents with holes have names of another kind


def _files(bundle: str) -> tuple[list[Misfit], int]:
    with open(os.path.join(bundle, "manifest.json"), encoding="utf-8") as file:
        manifest: dict[str, str] = json.load(file)["files"]
    findings: list[Misfit] = []
    there = {
        os.path.relpath(os.path.join(place, name), bundle)
        for place, _, names in os.walk(bundle)
        for name in names
        if "__pycache__" not in place
    }
    for name in sorted(there.symmetric_difference({*manifest, "manifest.json"})):
        word = "is in the bundle and not in its manifest" if name in there else "is missing from the bundle"
        findings.append(Misfit("bundle", 0, f"{name} {word}."))
    for name in sorted(there & set(manifest)):
        path = os.path.join(bundle, name)
        with open(path, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        if digest != manifest[name]:
            findings.append(Misfit("bundle", 0, f"{name} is not as it was exported."))
        if name.startswith("blobs/") and digest != os.path.basename(name) and os.path.getsize(path) <= _WHOLE:
            findings.append(Misfit("bundle", 0, f"{name} is not the content of that digest."))
    return findings, len(manifest)


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _stamps(sound: Sequence[Anchor], authority: str) -> tuple[list[Misfit], str]:
    stamps = [(anchor, *stamp) for anchor in sound for stamp in anchor.stamps]
    if not stamps:
        return [], "There are no time stamps."
    if not authority:
        return (
            [],
            f"{len(stamps)} time stamps were not checked: give the certificate of the service with --tsa-ca.",
        )
    findings: list[Misfit] = []
    for anchor, service, answer in stamps:
        why = stamp_fits(digest_of(anchor), base64.b64decode(answer), authority)
        if why is None:
            return [], f"{len(stamps)} time stamps were not checked: there is no program openssl here."
        if why:
            findings.append(
                Misfit(
                    "time stamp",
                    0,
                    f"The time stamp of {service} on anchor {anchor.number} does not fit: {why}.",
                )
            )
    return findings, f"{len(stamps) - len(findings)} time stamps fit."


def check_bundle(
    bundle: str, keys: Sequence[str], lists: Sequence[str], authority: str, say: Any
) -> list[Misfit]:
    with open(os.path.join(bundle, "bundle.json"), encoding="utf-8") as file:
        about: dict[str, Any] = json.load(file)
    findings, count = _files(bundle)
    say(f"Files: {count}, compared with the manifest.")
    places: list[Listed] = []
    for path in (os.path.join(bundle, "anchors.jsonl"), *lists):
        text = _text(path)
        places.append(listed(os.path.relpath(path, bundle), text, every_line=MARK not in text))
    wanted = {anchor.seq for place in places for anchor in place.anchors}
    chain = looked_at(_records(bundle), wanted)
    say(f"Chain: {chain.last} records, {chain.last - chain.taken} hashed again.")
    if chain.taken:
        say(
            f"Note: of {chain.taken} records the body is gone or was left out; their hashes were taken as they are."
        )
    result = judged(chain, places, about["name"], [public_key(_text(key)) for key in keys])
    findings += result.findings
    if result.sound:
        newest = result.sound[-1]
        say(f"Anchors: {len(result.sound)} fit; the newest of {when(newest.at)} covers {newest.seq} records.")
        say(f"Signatures: Ed25519, checked by this file; key {fingerprint(newest.key)}.")
    else:
        say("Anchors: none that fit. The chain alone does not show that it was rewritten or cut.")
    more, words = _stamps(result.sound, authority)
    say(f"Time stamps: {words}")
    for note in result.notes:
        say(f"Note: {note}")
    if not lists:
        say("Note: only anchors from inside the bundle were compared. Give your own copy with --anchors.")
    return findings + more


def main(words: list[str]) -> int:
    options: dict[str, list[str]] = {"--key": [], "--anchors": [], "--tsa-ca": []}
    bundle, rest = os.path.dirname(os.path.abspath(__file__)), list(words)
    while rest:
        word = rest.pop(0)
        if word in options and rest:
            options[word].append(rest.pop(0))
        elif word.startswith("-"):
            print(__doc__)
            return 0 if word in ("-h", "--help") else 2
        else:
            bundle = word
    try:
        findings = check_bundle(
            bundle, options["--key"], options["--anchors"], "".join(options["--tsa-ca"][-1:]), print
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"damaged: the bundle cannot be read: {error}")
        return 6
    for finding in findings:
        print(f"damaged: {finding.text}")
    print("Sound." if not findings else f"{len(findings)} findings.")
    return 6 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
