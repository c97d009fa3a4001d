"""The journal against its anchors: sign the newest head, copy it elsewhere, and find where the journal was changed."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from takeback.audit.anchor_places import (
    AnchorPlace,
    AuditSettings,
    PlaceKind,
    agent_changes,
    can_be_read,
    found,
    of_journal,
    place_named,
    trouble,
    written,
)
from takeback.audit.keys import KeyReach, Signer, reach, signature_fits
from takeback.audit.timestamps import stamped
from takeback.audit.verifier import (
    Anchor,
    ChainLook,
    Judgement,
    Listed,
    Misfit,
    anchor_json,
    digest_of,
    gap,
    judged,
    misfit,
    signed_bytes,
    stamp_fits,
    when,
)
from takeback.errors import Corrupt, Failed, Misuse, RecordInvalid, TakebackError, Unavailable
from takeback.model.person import Person, recorded
from takeback.model.record import GENESIS, HASH, STORE, Draft, Kind, Record, is_erased
from takeback.storage.sqlite.append import to_record
from takeback.storage.sqlite.check import Erasures, has_its_hash, page_of_records
from takeback.storage.store import Store

Clock = Callable[[], int]


# Looking.


def chain_of(store: Store, wanted: Sequence[int]) -> ChainLook:
    """Every record hashed again, in order."""
    needed, hashes, flaws = set(wanted), dict[int, str](), list[Misfit]()
    previous: bytes | None = GENESIS
    seq, at, first, taken = 0, 0, "", 0
    erasures = Erasures()
    while rows := page_of_records(store.database, seq):
        for row in rows:
            if row[0] != seq + 1:
                flaws.append(gap(seq, row[0]))
            seq = row[0]
            if len(row) == 1:
                flaws.append(Misfit("unreadable", seq, f"Record {seq} cannot be read."))
                previous = None
                continue
            _, kind, run, effect, at, _, sealed = row
            stored, seal = sealed[:HASH], sealed[HASH:]
            if previous is not None and not has_its_hash(row, previous):
                flaws.append(misfit(seq, kind, effect or run))
            elif problem := _sealed(row, seal, erasures, previous):
                flaws.append(problem)
            taken += len(seal) == 1
            previous, first = stored, first or stored.hex()
            if seq in needed:
                hashes[seq] = stored.hex()
    flaws += [Misfit("erased", 0, str(flaw)) for flaw in erasures.compare()]
    return ChainLook(first, seq, at, hashes, flaws, (previous or b"").hex(), taken)


def _sealed(row: Any, seal: bytes, erasures: Erasures, before: bytes | None) -> Misfit | None:
    """What was erased must be named by the record that erased it."""
    seq, kind, run, effect, at, _, stored = row
    try:
        if is_erased(seal) or kind == Kind.REDACT:
            erasures.add(to_record(row), before)
        else:
            erasures.add(Record(seq, kind, run, effect, at, {}, stored, seal), before)
    except (TakebackError, ValueError) as error:
        return Misfit("changed", seq, f"Record {seq} ({kind} of {effect or run}) was changed: {error}")
    return None


class PlaceLook(NamedTuple):
    place: str
    anchors: int
    newest: Anchor | None
    agent_changes: bool  # whether the agent's user can change or remove these anchors
    trouble: str = ""  # why it could not be looked at


class AnchorCheck(NamedTuple):
    chain: ChainLook
    judgement: Judgement
    places: tuple[PlaceLook, ...]
    unreachable: tuple[str, ...]  # places that should have been compared
    stamps: int  # time stamps that fit
    stamp_words: str
    unanchored: int  # records since the last anchor that fits, without those of anchors

    @property
    def sound(self) -> bool:
        return not self.judgement.findings

    @property
    def newest(self) -> Anchor | None:
        """The last anchor that fits."""
        return self.judgement.sound[-1] if self.judgement.sound else None


def checked(
    store: Store, places: Sequence[AnchorPlace], trusted: Sequence[str], now: Clock, authority: str = ""
) -> AnchorCheck:
    """The chain, and every anchor of these places and of the files that the journal names. What the journal says of
    anchors only adds to it: one that was cut has lost those."""
    own, copied = of_journal(store.journal)
    asked = list(dict.fromkeys((*places, *_files_named(copied))))
    lists, looks, unreachable = [own], list[PlaceLook](), list[str]()
    uid = os.geteuid()
    for place in asked:
        try:
            there = found(place, now) if can_be_read(place) else Listed(str(place), ())
        except TakebackError as error:
            unreachable.append(trouble(error))
            looks.append(PlaceLook(str(place), 0, None, agent_changes(place, uid), trouble(error)))
            continue
        lists.append(there)
        newest = max(there.anchors, key=lambda one: one.at, default=None)
        looks.append(PlaceLook(str(place), len(there.anchors), newest, agent_changes(place, uid)))
    chain = chain_of(store, [anchor.seq for one in lists for anchor in one.anchors])
    result = judged(chain, lists, name_of(store), trusted, signature_fits)
    lost = tuple(_lost_copies(own, lists[1:], copied))
    named = {str(place) for place in asked}
    notes = [
        f"{place} has copies of anchors and was not compared: --anchor {place}"
        for place in copied
        if place not in named
    ]
    result = result._replace(findings=(*result.findings, *lost), notes=(*result.notes, *notes))
    stamps, words, wrong = _stamps_of(result.sound, authority)
    result = result._replace(findings=(*result.findings, *wrong))
    covered = result.sound[-1].seq if result.sound else 0
    since: int = store.read("SELECT count(*) FROM records WHERE seq > ? AND kind <> 'anchor'", (covered,))[0][
        0
    ]
    return AnchorCheck(chain, result, tuple(looks), tuple(unreachable), stamps, words, since)


def _files_named(copied: dict[str, list[int]]) -> Iterator[AnchorPlace]:
    """Only files are read because the journal names them: an attacker who rewrote it could name anything."""
    for text in copied:
        place = place_named(text)
        if place.kind is PlaceKind.FILE:
            yield place


def _lost_copies(own: Listed, lists: Sequence[Listed], copied: dict[str, list[int]]) -> Iterator[Misfit]:
    """What was copied to a place and is not in it any more."""
    digests = {anchor.number: digest_of(anchor) for anchor in own.anchors}
    for there in lists:
        present = {digest_of(anchor) for anchor in there.anchors}
        gone = sorted(one for one in copied.get(there.place, ()) if digests.get(one) not in present)
        if gone:
            names = f"anchor {gone[0]}" if len(gone) == 1 else f"{len(gone)} anchors, {gone[0]} to {gone[-1]}"
            text = f"{there.place} has lost {names}: copied there, and not in it any more. It was cut or exchanged."
            yield Misfit("anchor removed", 0, text)


def _stamps_of(sound: Sequence[Anchor], authority: str) -> tuple[int, str, list[Misfit]]:
    import base64

    stamps = [(anchor, *one) for anchor in sound for one in anchor.stamps]
    if not stamps:
        return 0, "", []
    if not authority:
        return (
            0,
            f"{len(stamps)} time stamps were not checked: name the certificate of the service with --tsa-ca.",
            [],
        )
    wrong: list[Misfit] = []
    for anchor, service, answer in stamps:
        why = stamp_fits(digest_of(anchor), base64.b64decode(answer), authority)
        if why is None:
            return 0, f"{len(stamps)} time stamps were not checked: there is no program openssl here.", []
        if why:
            text = f"The time stamp of {service} on anchor {anchor.number} does not fit: {why}."
            wrong.append(Misfit("time stamp", 0, text))
    return len(stamps) - len(wrong), f"{len(stamps) - len(wrong)} time stamps fit.", wrong


def name_of(store: Store) -> str:
    """Machine and directory; of a store on a server its address, without a password."""
    return store.name if "://" in store.name else f"{os.uname().nodename}:{os.path.realpath(store.path)}"


# Anchoring.


class Anchored(NamedTuple):
    anchor: Anchor
    places: tuple[str, ...]  # that have it
    failed: tuple[tuple[str, str], ...]  # places that have not, and why
    is_new: bool = True  # else nothing was recorded since the last one


def stated(
    store: Store, places: Sequence[AnchorPlace], key: str, trusted: Sequence[str], now: Clock
) -> tuple[Anchor, bool]:
    """What is to be signed now, and whether anything was recorded since the anchor before. Refuses a journal that does
    not fit the anchors there are: a signature must not vouch for it."""
    look = checked(store, [one for one in places if can_be_read(one)], (*trusted, key), now)
    if look.judgement.findings:
        raise RecordInvalid(
            f"The journal is not anchored, because it does not fit: {look.judgement.findings[0].text}",
            hint="`takeback audit verify` lists everything that is wrong. An older key of yours goes into `trusted`.",
        )
    if not look.chain.last:
        raise Misuse(
            "The journal has no records yet, so there is nothing to anchor.",
            hint="Anchor after the first change.",
        )
    last = max(look.judgement.sound, key=lambda one: one.number, default=None)
    is_new = last is None or last.key != key or _news(store, last.seq)
    if not is_new and last is not None:
        return last, False
    number, previous = (last.number + 1, digest_of(last)) if last else (1, "")
    chain = look.chain
    return Anchor(chain.first, name_of(store), number, previous, chain.last, chain.head, now(), key), True


def _news(store: Store, seq: int) -> bool:
    """Whether anything but anchors was recorded since."""
    sql = "SELECT 1 FROM records WHERE seq > ? AND kind <> 'anchor' LIMIT 1"
    return bool(store.read(sql, (seq,)))


def signed(anchor: Anchor, signer: Signer) -> Anchor:
    return anchor._replace(signature=signer.sign(signed_bytes(anchor)).hex())


def refuse_unfit(store: Store, anchor: Anchor) -> None:
    """Of one that another user signed: it must be of this journal, and signed."""
    if not signature_fits(anchor):
        raise Misuse(
            "The signature of this anchor does not fit.", hint="Sign it with `takeback audit key sign`."
        )
    rows = store.read("SELECT hash FROM records WHERE seq = ?", (anchor.seq,))
    if anchor.name != name_of(store) or not rows or bytes(rows[0][0])[:HASH].hex() != anchor.hash:
        raise Misuse(
            "This anchor is not of this journal.", hint="`takeback audit anchor --print` prints one that is."
        )


def kept(store: Store, anchor: Anchor, places: Sequence[AnchorPlace], by: Person, now: Clock) -> Anchored:
    """Time stamps first, then the copies, then the record: a copy never depends on the journal."""
    import base64

    stamps, failed, done = list[tuple[str, str]](), list[tuple[str, str]](), list[str]()
    for place in places:
        if place.kind is PlaceKind.STAMP:
            try:
                answer = stamped(place.where, digest_of(anchor))
                stamps.append((place.where, base64.b64encode(answer).decode()))
                done.append(str(place))
            except TakebackError as error:
                failed.append((str(place), trouble(error)))
    anchor = anchor._replace(stamps=tuple(stamps))
    for place in places:
        if place.kind is PlaceKind.STAMP:
            continue
        try:
            written(place, anchor, now)
            done.append(str(place))
        except TakebackError as error:
            failed.append((str(place), trouble(error)))
    body: dict[str, Any] = {"anchor": anchor_json(anchor), "places": done, **recorded(by)}
    if failed:
        body["failed"] = [list(one) for one in failed]
    store.journal.append(None, [Draft(Kind.ANCHOR, STORE, "", body)])
    return Anchored(anchor, tuple(done), tuple(failed))


def failure(made: Anchored) -> Failed | Unavailable:
    """Of an anchor that not every place has."""
    from takeback.errors import ResourceUnreachable

    names = ", ".join(place for place, _ in made.failed)
    return ResourceUnreachable(
        f"Anchor {made.anchor.number} was not copied to {names}: {made.failed[0][1]}",
        hint="The other places have it. The next anchor goes to all of them again.",
    )


# What it proves.


class ProofLevel(NamedTuple):
    """How much of faults in the journal would show, and to whom."""

    level: int  # 0 the chain alone, 1 signed heads, 3 heads that the agent's user cannot change
    words: str
    weaknesses: tuple[str, ...]
    key: KeyReach
    last_anchor: int  # microseconds since 1970; 0: none
    anchored: int  # records that the last anchor covers
    unanchored: int
    places: tuple[PlaceLook, ...]


_LEVELS = {
    0: "only the chain of hashes: it shows damage and edits in the middle, not a journal that was rewritten or cut",
    1: "signed heads: a journal rewritten without the key shows, one cut to an earlier anchor does not",
    3: "signed heads, kept where the agent's user cannot change them: a journal rewritten or cut since then shows",
}


def proof_level(look: AnchorCheck, settings: AuditSettings) -> ProofLevel:
    """For `audit report`, and for the console."""
    newest = look.newest
    key = reach(settings.key, os.geteuid())
    if not key.key and newest:
        key = key._replace(key=newest.key)
    safe = [one for one in look.places if one.newest and not one.agent_changes]
    level = 0 if newest is None else 3 if safe else 1
    weak: list[str] = []
    if not look.sound:
        weak.append("The journal does not fit: see `takeback audit verify`.")
    if newest is None:
        weak.append("There is no anchor: `takeback audit anchor` signs the newest record.")
    elif key.agent_reads:
        weak.append(
            "The agent's user can read the key, so level 1 is worth little: an agent could rewrite the journal and "
            "sign it. Sign as another user: `takeback audit key sign --help`."
        )
    if newest is not None and not safe:
        weak.append(
            "The agent's user can change every copy of the anchors. Keep one under another user or on another host."
        )
    if newest and look.unanchored:
        weak.append(
            f"No anchor covers the records since {when(newest.at)}: {look.unanchored:,} of {look.chain.last:,}."
        )
    return ProofLevel(
        level, _LEVELS[level], tuple(weak), key, newest.at if newest else 0, newest.seq if newest else 0,
        look.unanchored, look.places,
    )  # fmt: skip


def damage(look: AnchorCheck) -> Corrupt:
    first = look.judgement.findings[0]
    since = (
        f" The last anchor that fits covers {look.newest.seq:,} records ({when(look.newest.at)})."
        if look.newest
        else ""
    )
    return RecordInvalid(
        f"The journal is not what was recorded: {len(look.judgement.findings)} findings. {first.text}{since}",
        hint="Keep the store and the anchors as they are, and compare with a backup or an export.",
    )
