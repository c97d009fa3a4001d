"""The store: how it stands, how large it is, what would be forgotten when. What takes long is worked out beside."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.api import now, opened_of
from takeback.api.proof import proof_level
from takeback.audit.status import Status, look
from takeback.frontends.console.visit import Answer, Shown, Visit
from takeback.model.effect import State

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.retention.candidates import Verdict

_MOST = 50


class StoreFigures(NamedTuple):
    status: Status
    going: tuple["Verdict", ...]  # would be forgotten now
    goes: int
    stays: int


def page(visit: Visit) -> Answer:
    """At once what the journal knows in constant time; the rest is asked for by the page."""
    store = visit.tb.store
    tally = store.journal.tally()
    data: Mapping[str, Any] = {
        "name": store.name,
        "tally": {state.value: tally.get(state.value, 0) for state in State},
        "records": tally["records"],
        "accepted": tally.get("accepted", 0),
        "pinned": tally.get("pinned", 0),
        "forgotten": tally.get("forgotten", 0),
        "settings": store.settings._asdict(),
        "suspect": store.suspect(),
        "retired": store.retired,
        "read_only": store.read_only,
        "altered": [*store.altered(), *filter(None, (store.lost(),))],
        "known": visit.console.figures.known("store"),
    }
    return Shown("store.html", data)


def figures(visit: Visit) -> Answer:
    """The slow part, with its age."""
    afresh = visit.word("afresh") == "1"
    figure = visit.console.figures.figure("store", lambda: _look(visit.tb), afresh)
    return Shown("figures.html", {"figure": figure, "found": figure.value})


def _look(tb: "Takeback") -> StoreFigures:
    verdicts = tb.forget(dry_run=True)
    going = [one for one in verdicts if one.forget]
    return StoreFigures(
        look(tb.store, tb.size(), now()), tuple(going[:_MOST]), len(going), len(verdicts) - len(going)
    )


def proof(visit: Visit) -> Answer:
    """How much of faults in the journal would show, and to whom. Checking the chain takes long in a large store."""
    afresh = visit.word("afresh") == "1"
    figure = visit.console.figures.figure("proof", lambda: proof_level(opened_of(visit.tb)), afresh)
    return Shown("proof.html", {"figure": figure, "found": figure.value})


def rehearsals(visit: Visit) -> Answer:
    """When a way back of each kind was last proven, and which are known not to work."""
    from takeback.audit.rehearsals import proven, unfit
    from takeback.model.rehearsal import Proven, Viability
    from takeback.runs.rehearsals.choice import with_every_kind

    journal = visit.tb.store.journal
    kinds = with_every_kind(journal, proven(journal), Proven(0, Viability.CANNOT))
    data = {
        "kinds": [(adapter, strategy, one) for (adapter, strategy), one in sorted(kinds.items())],
        "unfit": unfit(journal)[:_MOST],
        "days": visit.tb.store.settings.rehearse_days,
    }
    return Shown("rehearsals.html", data)
