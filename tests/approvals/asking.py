"""Changes that a policy asks about, in tests: with a ruling, as the policy would hand it over."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import takeback
from takeback.adapters.file.changes import write_change
from takeback.api import opened_of
from takeback.engine.approvable import challenge
from takeback.engine.write import Terms, do
from takeback.model.approver import People
from takeback.model.person import KnownBy, Person
from takeback.model.ruling import Asks, PolicyAnswer, Ruling
from takeback.policy.decide import InForce, no_conditions
from takeback.policy.rules import Layer, Level, Policy, PolicyRule
from takeback.runs.run import Run, core_of

ASK = Ruling(PolicyAnswer.ASK, "config files", "takeback.toml:3")
BEA, KIM, ALEX = (Person(name, KnownBy.KEY, f"key of {name}") for name in ("bea", "kim", "alex"))
PATIENCE = 60_000_000


def asks(people: int = 1, *of: str, seconds: int = 0, words: bool = False) -> Ruling:
    return ASK._replace(asks=Asks(people, of, seconds, words))


def writes(
    run: Run, path: Path, content: str, ruling: Ruling = ASK, at: Callable[[], int] | None = None
) -> takeback.Effect | None:
    core = core_of(run)
    change = write_change(path, core.parts.blobs.put(content.encode()), len(content))
    terms = Terms(path.name, asked_at=(at or core.now)(), patience=PATIENCE, agent=core.agent)
    return do(core.parts._replace(rules=lambda run, resources: only(ruling)), core.lease, change, terms)


def only(ruling: Ruling) -> InForce:
    """A policy of one rule, which matches everything."""
    asks = ruling.asks
    rule = PolicyRule(
        ruling.rule, 3, ruling.answer.value, asks=(asks.people, asks.of, asks.seconds, asks.challenge)
    )
    return InForce(Policy((Layer(Level.USER, "takeback.toml", "", (rule,)),)), no_conditions)


def asked(run: Run, path: Path, content: str, ruling: Ruling = ASK) -> takeback.AwaitingApproval:
    with pytest.raises(takeback.AwaitingApproval) as waiting:
        writes(run, path, content, ruling)
    return waiting.value


def says(
    tb: takeback.Takeback, waiting: takeback.AwaitingApproval, person: Person, approved: bool = True
) -> None:
    """What the console does once it knows who is logged in."""
    from takeback.api.decisions import decide_as

    effect = tb.effect(waiting.effect or "")
    decide_as(opened_of(tb), effect, approved, person, challenge(effect))


def with_people(tb: takeback.Takeback, people: People) -> None:
    """As if the files of this machine said so."""
    opened = opened_of(tb)
    opened.parts = opened.parts._replace(people=lambda: people)


def me() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name
