"""Whoever owns the store changes the journal or its anchors: it is found, and located."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from takeback.audit import anchors, keys, verifier
from takeback.audit.verifier import Anchor, Misfit, anchor_from, anchor_json, digest_of, signed_bytes
from takeback.model.record import HASH
from tests.proof.ledger import RECORDS, Ledger, Row, chain_again, filled, in_postgres, on_disk, recorded
from tests.servers.postgres import PgDatabase

VICTIM = RECORDS + 4  # a record between the first anchor and the second
FIRST = RECORDS  # the newest record when the first anchor was signed
SECOND = 2 * RECORDS + 1  # with the record of the first anchor itself
THIRD = 3 * RECORDS + 2
LAST = THIRD + 4


@pytest.fixture(scope="module", params=["disk", "postgres"])
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "tuple[str, Ledger, Path]":
    """One journal for all of them, and what is needed to put it back after each."""
    place = tmp_path_factory.mktemp("proof")
    if request.param == "disk":
        ledger = on_disk(place / "store", place)
    else:
        database: PgDatabase = request.getfixturevalue("pg_proof_database")
        ledger = in_postgres(database, place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(place / "state"))
        filled(ledger.path, place)
    shutil.copytree(place, place.with_suffix(".kept"), ignore=shutil.ignore_patterns("store", "state"))
    return request.param, ledger, place.with_suffix(".kept")


@pytest.fixture(scope="module")
def pg_proof_database(postgres: Any) -> Iterator[PgDatabase]:
    database = postgres.fresh()
    yield database
    database.drop()


@pytest.fixture
def ledger(made: "tuple[str, Ledger, Path]") -> Iterator[Ledger]:
    """As it was made, sound before each tampering."""
    _, ledger, kept = made
    rows = ledger.read()
    look = ledger.verified()
    assert look.judgement.findings == ()
    assert (look.chain.last, look.newest and look.newest.seq) == (LAST, THIRD)
    yield ledger
    ledger.write(rows)
    for file in kept.iterdir():
        shutil.copy2(file, ledger.place / file.name)


def edited(field: str, value: Any) -> Callable[[Ledger], None]:
    def tamper(rows: list[Row]) -> list[Row]:
        rows[VICTIM - 1] = rows[VICTIM - 1]._replace(**{field: value})
        return rows

    return lambda ledger: ledger.change(tamper)


def by_rows(change: Callable[[list[Row]], Sequence[Row]]) -> Callable[[Ledger], None]:
    return lambda ledger: ledger.change(lambda rows: list(change(rows)))


def swapped(rows: list[Row]) -> list[Row]:
    one, other = rows[VICTIM - 1], rows[VICTIM]
    rows[VICTIM - 1], rows[VICTIM] = other._replace(seq=one.seq), one._replace(seq=other.seq)
    return rows


def inserted(rows: list[Row]) -> list[Row]:
    """The new one fits what is before it; what comes after it is only numbered anew."""
    new = rows[VICTIM - 1].hashed(rows[VICTIM - 2].hash)
    later = [one._replace(seq=one.seq + 1) for one in rows[VICTIM - 1 :]]
    return [*rows[: VICTIM - 1], new, *later]


def rewritten(start: int) -> Callable[[Ledger], None]:
    """With the right hashes all the way: the chain itself is sound."""

    def tamper(rows: list[Row]) -> list[Row]:
        rows[start - 1] = rows[start - 1]._replace(body=b'{"agent":"someone else"}')
        return chain_again(rows, start)

    return lambda ledger: ledger.change(tamper)


def renumbered(rows: list[Row]) -> list[Row]:
    """A record is taken out, and the rest hashed again."""
    return chain_again([*rows[: VICTIM - 1], *rows[VICTIM:]], VICTIM)


def _lines(ledger: Ledger) -> list[Anchor]:
    return [anchor_from(json.loads(line)) for line in ledger.anchors.read_text().splitlines()]


def _write(ledger: Ledger, found: Sequence[Anchor]) -> None:
    ledger.anchors.write_text("".join(json.dumps(anchor_json(one)) + "\n" for one in found))


def forged(ledger: Ledger) -> None:
    """The second anchor tells of other records, with the signature that it had."""
    found = _lines(ledger)
    found[1] = found[1]._replace(hash="ab" * 32)
    _write(ledger, found)


def with_another_key(ledger: Ledger) -> None:
    """All is rewritten: the chain, the anchors, their records, signed with a key of whoever did it."""
    path = str(ledger.place / "other.key")
    if not Path(path).exists():
        keys.make(path, ledger.path)
    signer = keys.signer(path)
    rows = ledger.read()
    rows[VICTIM - 1] = rows[VICTIM - 1]._replace(body=b'{"agent":"someone else"}')
    rows, found, previous = chain_again(rows, VICTIM), list[Anchor](), ""
    for anchor in _lines(ledger):
        at = anchor.seq
        new = anchor._replace(
            key=signer.key, hash=rows[at - 1].hash[:HASH].hex(), previous=previous, signature=""
        )
        new = new._replace(signature=signer.sign(signed_bytes(new)).hex())
        previous = digest_of(new)
        found.append(new)
        body = json.loads(rows[at].body) | {"anchor": anchor_json(new)}
        rows[at] = rows[at]._replace(body=json.dumps(body, sort_keys=True, separators=(",", ":")).encode())
        rows = chain_again(rows, at + 1)
    ledger.write(rows)
    _write(ledger, found)


class Tampering(NamedTuple):
    tamper: Callable[[Ledger], None]
    what: str
    seq: int
    says: str
    check: str  # the function without which it would pass


def _cut(count: int) -> Callable[[Ledger], None]:
    return by_rows(lambda rows: rows[:count])


_AT_VICTIM = f"Record {VICTIM} "
_MISFIT, _CUT, _LOST = "misfit", "_against", "_lost_copies"


def without_victim(rows: list[Row]) -> list[Row]:
    return [*rows[: VICTIM - 1], *rows[VICTIM:]]


def without_the_last(ledger: Ledger) -> None:
    _write(ledger, _lines(ledger)[:-1])


def without_the_file(ledger: Ledger) -> None:
    ledger.anchors.unlink()


def without_the_second(ledger: Ledger) -> None:
    _write(ledger, _lines(ledger)[::2])


TAMPERINGS = {
    "the body of a record": Tampering(
        edited("body", b'{"agent":"no one"}'), "changed", VICTIM, _AT_VICTIM, _MISFIT
    ),
    "the time of a record": Tampering(edited("at", 1), "changed", VICTIM, _AT_VICTIM, _MISFIT),
    "the kind of a record": Tampering(edited("kind", "lift"), "changed", VICTIM, "(lift of store)", _MISFIT),
    "a record in the middle is deleted": Tampering(
        by_rows(without_victim), "removed", VICTIM, f"Record {VICTIM} is missing", "gap"
    ),
    "the tail is deleted": Tampering(_cut(THIRD - 3), "cut", THIRD - 2, "3 are missing", _CUT),
    "everything is deleted": Tampering(_cut(0), "cut", 1, "the journal is empty", _CUT),
    "two records change places": Tampering(by_rows(swapped), "changed", VICTIM, _AT_VICTIM, _MISFIT),
    "a record is inserted": Tampering(
        by_rows(inserted), "changed", VICTIM + 1, f"Record {VICTIM + 1} ", _MISFIT
    ),
    "the store is rolled back": Tampering(
        _cut(SECOND + 2), "cut", SECOND + 3, f"ends with record {SECOND + 2}", _CUT
    ),
    "the chain is rewritten from the first record": Tampering(
        rewritten(1), "rewritten", 1, "No anchor before it fits", _CUT
    ),
    "the chain is rewritten from the middle": Tampering(
        rewritten(VICTIM), "rewritten", FIRST + 1, f"Records {FIRST + 1} to {SECOND} were rewritten", _CUT
    ),
    "a record is taken out and the rest rewritten": Tampering(
        by_rows(renumbered), "rewritten", FIRST + 1, "anchor 1 (record 8,", _CUT
    ),
    "an anchor is forged": Tampering(forged, "forged", 0, "Anchor 2 in file:", "_forged"),
    "the key is replaced": Tampering(with_another_key, "foreign key", 0, "no one vouches for", "_about_keys"),
    "the anchor file is cut": Tampering(without_the_last, "anchor removed", 0, "has lost anchor 3", _LOST),
    "an anchor is taken out": Tampering(without_the_second, "anchor removed", 0, "has lost anchor 2", _LOST),
    "the anchor file is deleted": Tampering(
        without_the_file, "anchor removed", 0, "3 anchors, 1 to 3", _LOST
    ),
}


@pytest.mark.parametrize("case", TAMPERINGS.values(), ids=list(TAMPERINGS))
def test_is_found_and_located(ledger: Ledger, case: Tampering) -> None:
    case.tamper(ledger)

    found = ledger.verified(f"file:{ledger.anchors}").judgement.findings

    (told,) = [one for one in found if one.what == case.what][:1] or pytest.fail(f"not found; only {found}")
    assert told.seq == case.seq
    assert case.says in told.text


@pytest.mark.sampled(5)
@pytest.mark.parametrize("case", TAMPERINGS.values(), ids=list(TAMPERINGS))
def test_would_pass_without_the_check_that_finds_it(
    ledger: Ledger, case: Tampering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So each check can fail, and none is there for show."""
    case.tamper(ledger)
    nothing = Misfit(case.what, -1, "")
    silent: dict[str, Any] = {"misfit": nothing, "gap": nothing, "_against": None, "_forged": nothing}
    for module in (verifier, anchors):
        if hasattr(module, case.check):
            answer = silent.get(case.check, ())

            def blind(*_: object, answer: Any = answer) -> Any:
                return answer

            monkeypatch.setattr(module, case.check, blind)

    found = ledger.verified(f"file:{ledger.anchors}").judgement.findings

    assert [
        one for one in found if one.what == case.what and one.seq == case.seq and case.says in one.text
    ] == []


def test_a_cut_journal_with_a_cut_anchor_file_shows_only_against_a_copy_elsewhere(ledger: Ledger) -> None:
    copy = ledger.place / "copy-of-the-auditor"
    shutil.copy(ledger.anchors, copy)
    ledger.change(lambda rows: rows[: SECOND + 1])
    _write(ledger, _lines(ledger)[:-1])

    assert ledger.verified(f"file:{ledger.anchors}").sound  # nothing here could know
    (told,) = ledger.verified(f"file:{copy}").judgement.findings
    assert (told.what, told.seq) == ("cut", SECOND + 2)


def test_a_replaced_key_passes_where_no_one_vouches_for_the_old_one_and_that_is_said(ledger: Ledger) -> None:
    with_another_key(ledger)

    look = ledger.verified(f"file:{ledger.anchors}", key=False)

    assert look.sound
    assert "No one vouches for the key" in look.judgement.notes[0]


def test_anchors_of_another_journal_are_not_passed_over(ledger: Ledger, tmp_path: Path) -> None:
    other = on_disk(tmp_path / "store", tmp_path)
    filled(other.path, tmp_path)

    (told,) = ledger.verified(f"file:{other.anchors}", key=False).judgement.findings

    assert told.what == "rewritten"
    assert "it was rewritten from its first record on, or" in told.text.lower()


def test_what_does_not_fit_is_not_anchored(ledger: Ledger) -> None:
    import takeback
    from takeback.api import opened_of, proof

    rewritten(VICTIM)(ledger)
    with (
        takeback.open(ledger.path) as tb,
        pytest.raises(takeback.errors.RecordInvalid, match="is not anchored"),
    ):
        proof.anchor(opened_of(tb), f"file:{ledger.anchors}", key=str(ledger.key))
    assert len(_lines(ledger)) == 3


def test_records_since_the_last_anchor_are_counted_as_not_covered(ledger: Ledger) -> None:
    import takeback

    with takeback.open(ledger.path) as tb:
        recorded(tb, 5, 9)

    assert ledger.verified().unanchored == 8
