"""What waits for a person: approvals, calls in doubt, dead runs."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.api import now, opened_of
from takeback.api.decisions import decide_as, settle_as
from takeback.audit.runs import dead_runs, unsettled
from takeback.audit.status import in_doubt_now
from takeback.engine.approvable import digest_of
from takeback.engine.approval import Proposal, as_it_stands, proposals
from takeback.engine.stop import lift as lift_stops
from takeback.errors import Drifted, Misuse
from takeback.frontends.cli.commands.status import SETTLING
from takeback.frontends.cli.output.attention import standing_of
from takeback.frontends.console.effect_page import effect_named, records_of, way_back
from takeback.frontends.console.jobs import ConsoleJob
from takeback.frontends.console.sides import parts_or_why
from takeback.frontends.console.signed import hand_of
from takeback.frontends.console.visit import Answer, Redirected, Shown, Visit
from takeback.model.effect import Effect
from takeback.model.record import Record

if TYPE_CHECKING:
    from takeback.api import Takeback

_MOST = 50


class ApprovalRequest(NamedTuple):
    """A request for an approval, made from the change itself, not from words of the agent."""

    proposal: Proposal
    arguments: str
    parts: Sequence[Any]
    trouble: str

    @property
    def effect(self) -> Effect:
        return self.proposal.effect


class CallInDoubt(NamedTuple):
    effect: Effect
    arguments: str
    key: str
    records: Sequence[Record]


def approvals(visit: Visit) -> Answer:
    waiting, decided = _requests(visit.tb)
    data = {
        "waiting": waiting[:_MOST],
        "more": max(0, len(waiting) - _MOST),
        "decided": [(one.effect, standing_of(one)) for one in decided[:_MOST]],
    }
    return Shown("approvals.html", data)


def _requests(tb: "Takeback") -> tuple[list[ApprovalRequest], list[Proposal]]:
    found = proposals(tb.store, now())
    open_still = [one for one in found if not one.decision and not one.never]
    return [_request(tb, one) for one in open_still[:_MOST]], [one for one in found if one not in open_still]


def _request(tb: "Takeback", proposal: Proposal) -> ApprovalRequest:
    effect = proposal.effect
    parts, _, trouble = ([], 0, "") if "arguments" in effect.change.args else parts_or_why(tb, effect)
    return ApprovalRequest(proposal, effect.change.args.get("arguments", ""), parts, trouble)


def request_page(visit: Visit) -> Answer:
    effect = effect_named(visit)
    if effect.phase.gate is None:
        return Redirected(f"/effect/{effect.id}")
    request = _request(visit.tb, as_it_stands(visit.tb.store, effect, now()))
    return Shown("request.html", {"one": request, "way_back": way_back(effect)})


def decide(visit: Visit) -> Answer:
    """Approve or deny. The digest says on what the person decided."""
    effect, decision = effect_named(visit), visit.word("decision")
    if visit.word("digest") != digest_of(effect):
        raise Drifted(
            "The request is not the one that you saw. Nothing was decided.",
            hint="Load the page again and look at it as it is now.",
            effect=effect.id,
        )
    if decision not in ("approve", "deny"):
        raise Misuse("Neither yes nor no was said.", hint="Nothing was decided.")
    opened, person = opened_of(hand_of(visit.tb, visit.visitor)), visit.visitor.person
    decide_as(opened, effect.id, decision == "approve", person, visit.word("answer"), visit.word("why"))
    return Redirected(f"/effect/{effect.id}")


def doubts(visit: Visit) -> Answer:
    tb = visit.tb
    found = [
        CallInDoubt(one, one.change.args.get("arguments", ""), one.key, records_of(tb, one))
        for one in in_doubt_now(tb.store, now())
    ]
    stuck = [one for one in unsettled(tb.store, now()) if one.effect.id not in {d.effect.id for d in found}]
    data = {"doubts": found[:_MOST], "more": max(0, len(found) - _MOST), "stuck": stuck[:_MOST]}
    return Shown("doubts.html", data)


def settle(visit: Visit) -> Answer:
    effect, said, receipt = effect_named(visit), visit.word("happened"), visit.word("receipt")
    if said not in ("yes", "no"):
        raise Misuse("Neither yes nor no was chosen.", hint="Nothing was recorded.")
    told: Any = None
    if receipt:
        if said == "no":
            raise Misuse("What did not happen has no receipt.", hint="Leave the receipt empty.")
        try:
            told = json.loads(receipt)
        except ValueError:
            raise Misuse("The receipt is not JSON.", hint='For example {"id": 7}.') from None

    def work(job: ConsoleJob) -> Any:
        hand = hand_of(visit.tb, visit.visitor, job.progress, job.said.append)
        return settle_as(opened_of(hand), effect.id, said == "yes", visit.visitor.person, told)

    title = f"Settle {effect.change.summary}"
    job = visit.console.jobs.start(title, visit.visitor, "/doubts", work)
    return Redirected(f"/effect/{effect.id}" if job.outcome == "done" else f"/job/{job.id}")


def dead(visit: Visit) -> Answer:
    tb = visit.tb
    found = dead_runs(tb.store, now())
    data = {
        "dead": found[:_MOST],
        "more": max(0, len(found) - _MOST),
        "settling": SETTLING,
        "elsewhere": [info for info in tb.store.journal.runs(unfinished=True) if tb.store.elsewhere(info.id)],
    }
    return Shown("dead.html", data)


def recover(visit: Visit) -> Answer:
    def work(job: ConsoleJob) -> Any:
        hand = hand_of(visit.tb, visit.visitor, job.progress, job.said.append)
        opened_of(hand).settles = False
        return hand.recover()

    job = visit.console.jobs.start("Recover what dead processes left", visit.visitor, "/dead", work)
    return Redirected(f"/job/{job.id}")


def stop(visit: Visit) -> Answer:
    """Stop everything, an agent or a run; or lift that."""
    tb, why = visit.tb, visit.word("why")
    hand, by = hand_of(tb, visit.visitor), visit.visitor.person.name
    kind, _, name = visit.word("what").partition(":")
    if kind not in ("all", "agent", "run") or (kind != "all" and not name):
        raise Misuse("Say what to stop: everything, an agent or a run.", hint="Nothing was stopped.")
    aim: dict[str, Any] = {"everything": True} if kind == "all" else {kind: name}
    hand.stop(**aim, why=why, by=by)
    return Redirected(_back(visit))


def lift(visit: Visit) -> Answer:
    """Of the stops that were shown: one that was made since stays."""
    seqs = {int(one) for one in visit.words("stop") if one.isascii() and one.isdigit()}
    hand = hand_of(visit.tb, visit.visitor)
    if meant := [one for one in hand.stops() if one.seq in seqs]:
        lift_stops(hand.store.journal, meant, visit.visitor.person, visit.word("why"))
    return Redirected(_back(visit))


def _back(visit: Visit) -> str:
    """The page that the button was on, if it is one of ours."""
    back = visit.word("back")
    return back if back.startswith("/") and not back.startswith(("//", "/\\")) and back.isprintable() else "/"
