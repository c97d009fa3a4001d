"""Before a command runs: what of it could be taken back, what not, and who else is at work in the same place."""

import os
from typing import Any, NamedTuple

from takeback.model.effect import COMMAND, PERSON, Effect, State
from takeback.model.ids import short
from takeback.model.resource import display, overlaps
from takeback.storage.protocols import Journal, Query

# Programs whose doing is mostly elsewhere; found by name, so this is a hint and no verdict.
_ELSEWHERE = {
    "ssh": "another machine",
    "scp": "another machine",
    "rsync": "another machine, if one is named",
    "curl": "what it sends over the network",
    "wget": "what it sends over the network",
    "git": "what `git push` sends to another machine",
    "docker": "containers and images, which a running service keeps",
    "podman": "containers and images outside the files it touches here",
    "kubectl": "a cluster",
    "terraform": "what it makes at a provider",
    "aws": "what it makes at a provider",
    "gcloud": "what it makes at a provider",
    "systemctl": "services of this machine",
    "service": "services of this machine",
    "psql": "a database server",
    "mysql": "a database server",
    "redis-cli": "a database server",
    "npm": "what `npm publish` sends to a registry",
    "mail": "the mail it sends",
    "sendmail": "the mail it sends",
}


class Explained(NamedTuple):
    engine: str  # "sandbox" | "in place"
    why: str  # why not in a sandbox
    coverage: str
    read_only: tuple[tuple[str, str], ...]  # paths that cannot be written there, each with its reason
    beyond: tuple[str, ...]  # what this very command seems to reach that nobody can take back
    others: tuple[Effect, ...]  # held or going on in the same place


def beyond(argv: tuple[str, ...]) -> tuple[str, ...]:
    names = [os.path.basename(word) for word in argv]
    if argv[:2] == ("/bin/sh", "-c"):
        names = [os.path.basename(word) for word in argv[2].replace(";", " ").replace("|", " ").split()]
    found = {name: _ELSEWHERE[name] for name in names if name in _ELSEWHERE}
    return tuple(f"{name}: {what}" for name, what in found.items())


def others_at_work(journal: Journal, cwd: str) -> tuple[Effect, ...]:
    """Held and running changes where the command would run; the later one may meet a conflict."""
    waiting = journal.effects(Query(states=(State.PROPOSED, State.INTENDED)))
    return tuple(
        effect
        for effect in waiting
        if any(overlaps(cwd, one) for one in (effect.change.resource, *(t.resource for t in effect.targets)))
    )


def in_words(effect: Effect) -> str:
    doing = {PERSON: "is held", COMMAND: "is running"}.get(effect.waits_for, "is being made")
    return f"{short(effect.id)} {doing} in {display(effect.change.resource)}: {effect.change.summary}"


def explained_json(explained: Explained) -> dict[str, Any]:
    return {
        "engine": explained.engine,
        "why": explained.why,
        "coverage": explained.coverage,
        "read_only": [{"path": path, "reason": reason} for path, reason in explained.read_only],
        "beyond": list(explained.beyond),
        "others": [effect.id for effect in explained.others],
    }
