"""What `hook test` found last, kept in the store: when, with which versions, and what held."""

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import takeback
from takeback.frontends.agents.install import WATCH, HookSettings
from takeback.frontends.agents.settings import HookCommand

if TYPE_CHECKING:
    from takeback.frontends.agents.trial import Program, TrialPoint


class Proof(NamedTuple):
    """One test of the hooks in one settings file."""

    at: int  # microseconds since 1970
    agent: str
    file: str
    program: str
    version: str  # of the agent; empty if it is not known
    takeback: str
    hooks: str  # which entries were tested, as a hash
    checks: tuple[tuple[str, bool, str], ...]  # name, whether it held, and what was seen
    mode: str = WATCH  # in which shell commands ran

    @property
    def proven(self) -> bool:
        return bool(self.checks) and all(held for _, held, _ in self.checks)

    def failures(self) -> list[str]:
        return [seen for _, held, seen in self.checks if not held]


def proof_of(
    settings: HookSettings,
    found: Sequence[HookCommand],
    program: "Program",
    checks: "Sequence[TrialPoint]",
    at: int,
    mode: str,
) -> Proof:
    told = tuple((one.name, one.held, one.detail) for one in checks)
    return Proof(
        at,
        settings.host.NAME,
        settings.file,
        program.path,
        program.version,
        takeback.__version__,
        print_of(found),
        told,
        mode,
    )


def print_of(found: Sequence[HookCommand]) -> str:
    """A hash of our entries: two installations that are alike have the same."""
    words = json.dumps(sorted([one.event, one.command] for one in found))
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()


def keep(store: str, proof: Proof) -> None:
    """In the place of the one before."""
    place = _place(store, proof.agent, proof.file)
    os.makedirs(os.path.dirname(os.path.dirname(place)), mode=0o700, exist_ok=True)
    os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
    fresh = f"{place}.{os.getpid()}"
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        json.dump(proof._asdict(), file)
    os.replace(fresh, place)


def last_proof(store: str, settings: HookSettings) -> Proof | None:
    """None if these hooks were never tested; one that cannot be read proves nothing."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        with open(_place(store, settings.host.NAME, settings.file), encoding="utf-8") as file:
            told = cast("dict[str, Any]", dict(json.load(file)))
        checks = tuple((str(name), held is True, str(seen)) for name, held, seen in told.pop("checks"))
        at = int(told.pop("at"))
        proof = Proof(at, checks=checks, **{name: str(one) for name, one in told.items()})
        if proof.file == settings.file and checks:
            return proof
    return None


def _place(store: str, agent: str, file: str) -> str:
    name = hashlib.sha256(os.fsencode(file)).hexdigest()[:16]
    return os.path.join(store, "hooks", "proofs", f"{agent}-{name}.json")
