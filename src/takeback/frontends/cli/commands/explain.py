"""`explain`: the verdict before anything runs."""

import os
from typing import Any, NamedTuple

from takeback.frontends.cli.command import Asked, Command, Does, flag, positional, repeated
from takeback.frontends.cli.commands.run import command_in, refuse_stray_root
from takeback.frontends.cli.output.screen import clean, from_here, say_first
from takeback.frontends.cli.session.store import nothing_yet, opened, own_directory
from takeback.model.effect import COMMAND as OF_A_COMMAND
from takeback.model.effect import PERSON, Effect, State
from takeback.model.ids import short
from takeback.model.resource import display, file_resource, overlaps
from takeback.runs.commands.outcome import of_roots, of_sandbox
from takeback.runs.commands.request import directory_of, words_of
from takeback.storage.protocols import Journal, Query

# Programs whose doing is mostly elsewhere; found by name, so this is a hint and no verdict.
_REACHED = {
    "another machine": "ssh scp",
    "another machine, if one is named": "rsync",
    "what it sends over the network": "curl wget",
    "what `git push` sends to another machine": "git",
    "containers and images, which a running service keeps": "docker",
    "containers and images outside the files it touches here": "podman",
    "a cluster": "kubectl",
    "what it makes at a provider": "terraform aws gcloud",
    "services of this machine": "systemctl service",
    "a database server": "psql mysql redis-cli",
    "what `npm publish` sends to a registry": "npm",
    "the mail it sends": "mail sendmail",
}
_ELSEWHERE = {program: what for what, programs in _REACHED.items() for program in programs.split()}


class Explained(NamedTuple):
    engine: str  # "sandbox" | "in place"
    why: str  # why not in a sandbox
    coverage: str
    read_only: tuple[tuple[str, str], ...]  # paths that cannot be written there, each with its reason
    beyond: tuple[str, ...]  # what this command seems to reach that cannot be undone
    others: tuple[Effect, ...]  # held or running in the same place


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
    doing = {PERSON: "is held", OF_A_COMMAND: "is running"}.get(effect.waits_for, "is being made")
    return f"{short(effect.id)} {doing} in {display(effect.change.resource)}: {effect.change.summary}"


def explained_json(explained: Explained) -> dict[str, Any]:
    return {
        "engine": explained.engine,
        "reason": explained.why,
        "coverage": explained.coverage,
        "read_only": [{"path": path, "reason": reason} for path, reason in explained.read_only],
        "beyond": list(explained.beyond),
        "others": [effect.id for effect in explained.others],
    }


_LISTED = 8


_ARGUMENTS = (
    flag("--in-place", "as `run --in-place` would do it"),
    repeated("--root", "DIR", "what would be watched in place"),
    flag("--any-root", "as `run --in-place --any-root` would do it"),
    flag("--no-network", "as `run --no-network` would do it"),
    positional("command", "COMMAND", "the command, after --", nargs="..."),
)


def _explain(asked: Asked) -> int:
    options, screen = asked.options, asked.screen
    argv = words_of(command_in(options.command, "explain"))
    refuse_stray_root(options)
    cwd = directory_of(None)
    explained = _explained(asked, argv, cwd)
    screen.give(explained_json(explained))
    if explained.engine == "sandbox":
        screen.say("It would run in a sandbox: its changes become visible only when it ends with 0.")
    else:
        why = f" ({clean(explained.why)})" if explained.why else ""
        screen.say(f"It would run in place{why}: what it changes is seen at once, and recorded when it ends.")
    screen.say(from_here(explained.coverage))
    read_only = [f"{from_here(path)}: {clean(reason)}" for path, reason in explained.read_only]
    say_first(screen.say, read_only, _LISTED, "  ")
    if explained.beyond:
        screen.say("Judging by its name, it may change things that cannot be taken back:")
        for one in explained.beyond:
            screen.say(f"  {clean(one)}")
    if explained.others:
        screen.say("Others are at work here; what both change would be a conflict:")
        for effect in explained.others[:_LISTED]:
            screen.say(f"  {from_here(in_words(effect))}")
    return 0


def _explained(asked: Asked, argv: tuple[str, ...], cwd: str) -> Explained:
    from takeback.sandbox.ability import ability, unmapped

    options = asked.options
    others = ()
    if not nothing_yet(asked):
        with opened(asked) as tb:
            others = others_at_work(tb.store.journal, file_resource(cwd))
    able = ability(own_directory(asked))
    if options.in_place or not able.engine:
        from takeback.adapters.watch.roots import refuse_dangerous, roots_of

        roots = roots_of(options.root or (cwd,))
        refuse_dangerous(roots, os.fsencode(os.path.realpath(own_directory(asked))), options.any_root)
        coverage = of_roots(tuple(display(root.resource) for root in roots), apart=os.geteuid() == 0)
        return Explained("in place", "" if options.in_place else able.why, coverage, (), beyond(argv), others)
    coverage = of_sandbox(able, not options.no_network)
    path, whose = unmapped(cwd)
    here = ((path, f"{whose}: cannot be changed inside"),) if path else ()
    return Explained("sandbox", "", coverage, (*here, *able.not_covered), beyond(argv), others)


_USAGE = "takeback explain [options] -- COMMAND [ARGUMENT…]"
COMMAND = Command(_explain, _ARGUMENTS, _USAGE, does=Does.LOOKS)
