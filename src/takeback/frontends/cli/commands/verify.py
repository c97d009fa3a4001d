"""`verify`: is the store sound?"""

import time
from typing import TYPE_CHECKING, Any

import takeback.api
from takeback.api.upkeep import Verified
from takeback.errors import (
    BlobDamaged,
    BlobMissing,
    Corrupt,
    RecordInvalid,
    ResourceUnreachable,
    TakebackError,
)
from takeback.frontends.cli.command import Asked, Command, Does, flag
from takeback.frontends.cli.output.errors import as_field, told_trouble
from takeback.frontends.cli.output.screen import clean, counted, from_here, took
from takeback.frontends.cli.session.store import nothing_yet, show_work, store_path
from takeback.model.ids import short
from takeback.model.record import Flaw

if TYPE_CHECKING:
    from takeback.audit.runs import DamageReach


_BACKUP = (
    "Restore the store from a backup (all of {store} together), or move it away to start a new store; your files "
    "stay as they are."
)


def _verify(asked: Asked) -> int:
    screen = asked.screen
    if nothing_yet(asked):
        return _unsound(
            asked,
            ResourceUnreachable(
                f"There is no store at {store_path(asked)}.",
                hint="Nothing could be checked. --store or TAKEBACK_STORE name another one; a store that was deleted "
                "comes back only from a backup.",
            ),
        )
    started = time.perf_counter()
    try:
        with takeback.api.open(store_path(asked), recover=False) as tb:
            show_work(asked, tb)
            found = _verified(asked, tb)
            hurt = None if found.sound else _reach(tb, found.findings)
    except Corrupt as error:
        return _unsound(asked, error)
    errors = [] if found.sound else [_damaged(asked, found, hurt)]
    screen.give(_verified_json(asked, found, hurt) | as_field(screen, errors))
    for finding in found.findings:
        screen.say(screen.paint(f"damaged: {from_here(finding)}", "red"))
    how = "read" if asked.options.read_data else "looked at"
    what = f"{counted(found.records, 'record')} checked and {counted(found.blobs, 'blob')} {how} in {took(started)}"
    screen.say(f"{'Sound' if found.sound else counted(len(found.findings), 'finding')}: {what}.")
    if not found.sound:
        _say_reach(asked, hurt)
    elif not asked.options.read_data:
        screen.hint("--read-data also reads every blob again.")
    return told_trouble(screen, errors)


def _damaged(asked: Asked, found: Verified, hurt: "DamageReach | None") -> TakebackError:
    rest = "Damaged effects come back only from a backup of the store; the rest can still be undone."
    if hurt and hurt.damaged:
        rest += f" `takeback log --run {short(hurt.damaged[0].id)}` lists the effects of the run."
    return Corrupt(
        f"The store is damaged: {counted(len(found.findings), 'finding')}.",
        hint=_BACKUP.format(store=store_path(asked)) if hurt is None else rest,
    )


def _verified(asked: Asked, tb: takeback.api.Takeback) -> Verified:
    try:
        return tb.verify(read_data=asked.options.read_data)
    except Corrupt as error:
        # So damaged that the check ended early: report what the journal itself still shows.
        found = Flaw(str(error), unreadable=True)
        return Verified(tuple(dict.fromkeys((*tb.store.journal.check(), found))), 0, 0)


def _reach(tb: takeback.api.Takeback, findings: tuple[Flaw, ...]) -> "DamageReach | None":
    """None if unknown."""
    from takeback.audit.runs import reach

    try:
        return reach(tb.store, findings)
    except Corrupt:
        return None


def _verified_json(asked: Asked, found: Verified, hurt: "DamageReach | None") -> dict[str, Any]:
    return {
        "sound": found.sound,
        "findings": list(found.findings),
        "records": found.records,
        "blobs": found.blobs,
        "read_data": asked.options.read_data,
        "damaged_runs": [info.id for info in hurt.damaged] if hurt else [] if found.sound else None,
    }


def _unsound(asked: Asked, error: TakebackError) -> int:
    """The store could not be looked into at all."""
    if isinstance(error, (RecordInvalid, BlobMissing, BlobDamaged)):
        # Their hint is to run what could not be done.
        error = type(error)(str(error), hint=_BACKUP.format(store=store_path(asked)))
    if not asked.screen.json:
        raise error
    found = Verified((Flaw(str(error), unreadable=True),), 0, 0)
    asked.screen.give(_verified_json(asked, found, None) | as_field(asked.screen, [error]))
    return error.exit_code


def _say_reach(asked: Asked, hurt: "DamageReach | None") -> None:
    screen = asked.screen
    if hurt is None:
        screen.say("The damaged runs are unknown: the journal cannot be read to its end.")
        return
    for info in hurt.damaged:
        screen.say(f"hurt:    run {screen.id(info.id)} {clean(info.name)}")
    screen.say(f"{counted(len(hurt.usable), 'run')} can be used as before.")


_READ_DATA = flag("--read-data", "read every blob again (slow, complete)")
COMMAND = Command(_verify, (_READ_DATA,), does=Does.LOOKS)
