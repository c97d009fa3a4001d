"""What the server says of the store, in our own words."""

import json
from typing import Any

from takeback.errors import (
    Blocked,
    Corrupt,
    KeyReused,
    LeaseLost,
    Misuse,
    RecordInvalid,
    Refused,
    ResourceUnreachable,
    ServerUnreachable,
    StoreBusy,
    TakebackError,
)
from takeback.model.ids import short
from takeback.model.life import overtaken, superseded
from takeback.model.resource import display
from takeback.storage import retiring
from takeback.storage.postgres.connecting import driver, first_line

_DAMAGED = ("XX001", "XX002")


def is_lost(error: Any) -> bool:
    """Whether the connection is gone: then nobody has said what became of the statement."""
    psycopg = driver()
    state: str = error.sqlstate or ""
    if isinstance(error, psycopg.InterfaceError):
        return True
    return isinstance(error, psycopg.OperationalError) and (
        not state or (state[:2] in ("08", "57") and state != "57014")
    )


def is_of_token(error: Any) -> bool:
    """The same append was taken before."""
    return error.sqlstate == "23505" and error.diag.constraint_name == "one_append_per_token"


def translated(error: Any, run: str = "") -> TakebackError:
    state: str = error.sqlstate or ""
    said = first_line(error)
    if state.startswith("TB"):
        return _ours(state, said, json.loads(error.diag.message_detail or "{}"), run)
    if state == "23505":
        return _not_unique(error, said)
    if is_lost(error):
        return ServerUnreachable(
            f"The connection to the store was lost: {said}",
            hint="Trying again is safe once the server answers.",
        )
    if state in ("55P03", "40P01", "40001", "57014"):
        return StoreBusy(
            "Another process has been writing to the store for too long.",
            hint="Try again; `takeback doctor` shows who is at work.",
        )
    if state in _DAMAGED:
        return RecordInvalid(
            f"The journal is damaged: {said}",
            hint="Run `takeback verify`: it tells how far the damage reaches.",
        )
    if state == "25006":
        return ResourceUnreachable(
            f"The store takes no changes: {said}",
            hint="It is a replica, or set to read only. Looking still works.",
        )
    if state == "42501":
        return Refused(f"The store may not be used by this role: {said}", hint="Ask the owner of its schema.")
    if state[:2] in ("53", "58"):
        return ResourceUnreachable(
            f"The store could not be written: {said}", hint="Nothing was changed. Make room on the server."
        )
    if state == "42P01" or state == "3F000":
        return Corrupt(f"The store has lost a table: {said}", hint="Restore it from a backup.")
    if not state or state in ("22021", "22P05"):
        return Misuse(f"The store does not take this: {said}", hint="Text in it holds no NUL characters.")
    return RecordInvalid(f"The journal refused: {said}", hint="Run `takeback verify`.")


def _ours(state: str, said: str, detail: dict[str, Any], run: str) -> TakebackError:
    """What the functions in schema/ raise."""
    effect: str = detail.get("effect", "")
    if state == "TB001":
        return LeaseLost(
            f"Run {short(run)} was taken over by another process while this one was away.",
            hint=f"Nothing more is written for it; `takeback log --run {short(run)}` shows where it stands.",
        )
    if state == "TB004":
        return Blocked(
            f"Effect {short(effect)} on {display(detail['resource'])} is stuck, so nothing may build on it.",
            hint=f"`takeback show {short(effect)}` tells what is known; put it right and run `takeback recover`, or "
            "undo it: merge, skip and force say what becomes of what is someone else's.",
            blockers=(effect,),
        )
    if state == "TB005":
        return StoreBusy(
            f"Another effect ({short(effect)}) is being made on {display(detail['resource'])}.",
            hint="Try again when it is finished.",
            effect=effect,
        )
    if state == "TB006":
        return overtaken(effect)
    if state == "TB010":
        return superseded(effect)
    if state == "TB007":
        return Refused(said, hint="Nothing was recorded.")
    if state == retiring.STATE:
        return retiring.refused()
    if state == "TB008":
        return Misuse(said, hint="Resume it, or submit another one.")
    return RecordInvalid(said, hint="Run `takeback verify` to see how far the damage goes.")


def _not_unique(error: Any, said: str) -> TakebackError:
    detail: str = error.diag.message_detail or ""
    key = detail.partition("=(")[2].rpartition(")")[0]
    of = {"one_effect_per_key": "effect", "one_run_per_key": "run"}.get(error.diag.constraint_name or "")
    if of:
        every = "change" if of == "effect" else "run"
        return KeyReused(
            f"The key {key!r} already belongs to another {of}.",
            hint=f"Give every {every} its own key, or none.",
        )
    return RecordInvalid(f"The journal refused: {said}", hint="Run `takeback verify`.")
