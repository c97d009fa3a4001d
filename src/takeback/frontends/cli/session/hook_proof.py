"""`hook test`, and what `hook status` and `doctor` say of the last one."""

import os
import time
from typing import Any, NamedTuple

import takeback
import takeback.api
from takeback.audit.views import iso
from takeback.errors import Failed, Misuse, Refused, TakebackError
from takeback.frontends.agents.hosts import NAMES, host
from takeback.frontends.agents.install import (
    SANDBOX,
    WATCH,
    HookSettings,
    content_of,
    found_in,
    further_hooks,
    is_installed,
    mode_in,
    settings_of,
    why_mode,
)
from takeback.frontends.agents.launch import launcher
from takeback.frontends.agents.obstacles import obstacles, version_at, version_of
from takeback.frontends.agents.plugins import CLAUDE, TWICE, plugins_in
from takeback.frontends.agents.proof import Proof, keep, last_proof, print_of, proof_of
from takeback.frontends.agents.settings import HookCommand, compiled_shim, shim_path
from takeback.frontends.cli.command import Asked
from takeback.frontends.cli.output.errors import as_field, told_trouble
from takeback.frontends.cli.output.screen import clean, counted, from_here, listed
from takeback.frontends.cli.session.store import own_directory
from takeback.storage.daemon_socket import answers
from takeback.storage.sqlite.store import exists


class InstalledHooks(NamedTuple):
    """Hooks of takeback in one settings file."""

    settings: HookSettings
    found: tuple[HookCommand, ...]
    trouble: str = ""  # why the file cannot be read

    @property
    def problems(self) -> list[str]:
        """What is wrong with the entries themselves."""
        if not self.found:
            return []
        told: list[str] = []
        names = {one.event for one in self.found}
        missing = [point.name for point in self.settings.host.EVENTS if point.name not in names]
        if missing and not self.settings.is_plugin:
            told.append(f"No hook for {', '.join(missing)}.")
        for what, paths in (
            ("The interpreter", {one.python for one in self.found}),
            ("The hook program", {one.shim for one in self.found}),
            ("The compiled hook program", {one.compiled for one in self.found} - {""}),
        ):
            told += [
                f"{what} {path or '(unknown)'} does not exist." for path in paths if not os.path.exists(path)
            ]
        if other := {one.shim for one in self.found} - {shim_path()}:
            told.append(f"The hooks are of another installation: {listed(sorted(other))}.")
        return told

    @property
    def shim(self) -> str:
        """What the hooks start: `compiled` or `python`; empty without hooks."""
        if not self.found:
            return ""
        return "compiled" if all(one.compiled for one in self.found) else "python"


def said_shim(shim: str) -> str:
    if shim == "compiled":
        return "compiled"
    if compiled_shim():
        return "Python; `takeback hook install` again chooses the compiled one, which is faster"
    return "Python; this installation has no compiled one"


def looked_at(settings: HookSettings) -> InstalledHooks:
    try:
        return InstalledHooks(settings, found_in(settings, content_of(settings.file)))
    except TakebackError as error:
        return InstalledHooks(settings, (), str(error))


def file_told(one: InstalledHooks) -> dict[str, Any]:
    return {
        "level": "user" if one.settings.user else "project",
        "file": one.settings.file,
        "events": [entry.event for entry in one.found],
        "shim": one.shim,
        "store": next((entry.store for entry in one.found if entry.store), ""),
        "problems": [*([one.trouble] if one.trouble else []), *one.problems],
    }


class ProofNow(NamedTuple):
    """How far the hooks in one settings file are proven now."""

    proof: Proof | None
    proven: bool  # the last test held, and nothing that it depends on has changed since
    detail: str
    testable: bool = True


def standing(store: str, settings: HookSettings, found: tuple[HookCommand, ...], version: str) -> ProofNow:
    """`version`: of the agent that is installed now; empty if it is not known."""
    proof, title = last_proof(store, settings), settings.host.TITLE
    if launcher(settings.host.NAME) is None:
        return ProofNow(None, False, f"cannot be proven: {title} cannot be run without a person", False)
    if settings.file.endswith(".toml"):
        return ProofNow(
            None, False, "cannot be proven: `takeback hook test` tests hooks of hooks.json", False
        )
    if proof is None:
        return ProofNow(None, False, "never proven")
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(proof.at // 1_000_000))
    by = f"{title} {proof.version}".strip()
    if not proof.proven:
        return ProofNow(
            proof, False, f"the last test, on {when} with {by}, failed: {proof.failures()[0].rstrip('.')}"
        )
    changed: list[str] = []
    if version != proof.version:
        changed.append(f"{title} is {version or 'of an unknown version'} now")
    if takeback.__version__ != proof.takeback:
        changed.append(f"takeback is {takeback.__version__} now")
    if print_of(found) != proof.hooks:
        changed.append("the hooks were changed since")
    if (mode := _mode_at(settings)) != proof.mode:
        changed.append(f"the mode is {mode} now")
    told = f"proven on {when} with {by} and takeback {proof.takeback}"
    return ProofNow(proof, not changed, f"{told}; {', '.join(changed)}" if changed else told)


def standing_json(one: ProofNow) -> dict[str, Any]:
    told = proof_json(one.proof) if one.proof else None
    return {"proven": one.proven, "detail": one.detail, "last": told}


def proof_json(proof: Proof) -> dict[str, Any]:
    return {
        "at": iso(proof.at),
        "program": proof.program,
        "agent_version": proof.version,
        "takeback_version": proof.takeback,
        "proven": proof.proven,
        "mode": proof.mode,
        "checks": [{"name": name, "held": held, "detail": seen} for name, held, seen in proof.checks],
    }


def test_hooks(asked: Asked, settings: HookSettings) -> int:
    """Run the agent with these hooks, say what was seen, and keep it."""
    from takeback.frontends.agents.trial import Program, hooks_to_test, tried

    screen, title = asked.screen, settings.host.TITLE
    plugins = plugins_in(os.environ, os.getcwd()) if settings.host.NAME == CLAUDE else ()
    data = hooks_to_test(settings, plugins[0].name if plugins else "")
    path = _program(settings, asked.options.program)
    program = Program(path, version_at(path))
    screen.remark(f"{program.shown(title)} runs apart from your settings, against a model on this machine.")
    points = tried(settings, data, program, os.environ)
    found = found_in(settings, data)
    proof = proof_of(settings, found, program, points, takeback.api.now(), mode_in(settings, data))
    store = own_directory(asked)
    if not exists(store):
        with takeback.api.open(store):
            pass  # a store is made in a directory that is empty
    keep(store, proof)
    in_the_way = obstacles(settings.host.NAME, os.environ, os.getcwd())
    shim = InstalledHooks(settings, found).shim
    _say(asked, settings, proof, shim, in_the_way)
    errors = [_not_proven(proof, title)] if not proof.proven else []
    told: dict[str, Any] = {
        "agent": proof.agent,
        "level": "user" if settings.user else "project",
        "file": proof.file,
    }
    told |= {**proof_json(proof), "shim": shim, "obstacles": list(in_the_way)}
    screen.give(told | as_field(screen, errors))
    return told_trouble(screen, errors)


def _program(settings: HookSettings, named: str) -> str:
    from shutil import which

    found = which(named or settings.host.PROGRAM)
    if found:
        return os.path.abspath(found)
    if named:
        raise Misuse(f"{named} is no program that can be started.", hint="Name the program of the agent.")
    raise Refused(
        f"There is no `{settings.host.PROGRAM}` on your PATH, so {settings.host.TITLE} cannot be run.",
        hint="Install it, or name its program with --program.",
    )


def _say(asked: Asked, settings: HookSettings, proof: Proof, shim: str, in_the_way: tuple[str, ...]) -> None:
    screen = asked.screen
    by = f"{settings.host.TITLE} {proof.version}".strip()
    mode = f", mode: {proof.mode}" if proof.mode != WATCH else ""
    screen.say(f"{by}, hooks of {from_here(settings.file)} (shim: {shim}{mode}):")
    for _, held, seen in proof.checks:
        mark = screen.paint("yes", "green") if held else screen.paint("no ", "red")
        screen.say(f"  {mark}  {clean(seen)}")
    if settings.host.NAME in _TRUST:
        screen.say(f"  {_TRUST[settings.host.NAME]}")
    for one in in_the_way:
        screen.say(screen.paint(f"  {from_here(one)}", "yellow"))


# What the test grants the agent so that it runs at all, and so does not prove.
_TRUST = {
    "codex": "Trust was not tested: for the test Codex was asked to run hooks without it.",
    "gemini": "Trust was not tested: for the test Gemini CLI was asked to trust its folder.",
}


def _not_proven(proof: Proof, title: str) -> Failed:
    failed = proof.failures()
    return Failed(
        f"{counted(len(failed), 'check')} of {len(proof.checks)} did not hold, so the hooks of {title} are not proven.",
        hint=f"`takeback hook status {proof.agent}` shows what keeps hooks from running.",
    )


# Status: it only reads.


def show_status(asked: Asked) -> int:
    project = os.getcwd()
    levels = [
        level
        for level in (True, False)
        if asked.options.user in (level, False) and asked.options.project in (not level, False)
    ]
    told: list[dict[str, Any]] = []
    for name in [asked.options.host] if asked.options.host else NAMES:
        places = [settings_of(name, level, os.environ, project) for level in levels]
        further = [one for one in further_hooks(name, os.environ, project) if one.user in levels]
        places += further
        installs = [looked_at(one) for one in places]
        on = sum(bool(one.found) for one in installs)
        mode = next((SANDBOX for one in places if _mode_at(one) == SANDBOX), WATCH)
        plugins = plugins_in(os.environ, project) if name == CLAUDE else ()
        why = why_mode(host(name), mode) if on else "the only one with the plugin" if plugins else ""
        version = version_of(name, os.environ)
        proofs = [
            standing(own_directory(asked), one.settings, one.found, version) if one.found else None
            for one in installs
        ]
        told.append(
            {
                "agent": name,
                "title": host(name).TITLE,
                "here": is_installed(name, os.environ),
                "version": version,
                "installed": bool(on or plugins),
                "plugins": [one._asdict() for one in plugins],
                "mode": mode if on or plugins else "",
                "why": why,
                "files": [
                    {**file_told(one), "proof": standing_json(proof) if proof else None}
                    for one, proof in zip(installs, proofs, strict=True)
                ],
                "obstacles": [
                    *([TWICE] if plugins and any(one.found for one in installs) else []),
                    *(TWICE_IN.format(one.file) for one in further if len(further) < on),
                    *(obstacles(name, os.environ, project) if on or plugins else ()),
                ],
                "if_missing": host(name).COVERS_MISSING,
            }
        )
        _say_status(asked, told[-1])
    running = answers(own_directory(asked))
    asked.screen.give({"agents": told, "daemon": {"running": running}})
    if any(one["installed"] for one in told):
        asked.screen.say(
            "The daemon is running." if running else "The daemon is not running; the next hook starts it."
        )
    elif not asked.options.host and not any(one["here"] for one in told):
        asked.screen.say("No coding agent was found on this machine.")
    return 0


def _say_status(asked: Asked, told: dict[str, Any]) -> None:
    screen = asked.screen
    if not told["installed"] and not any(one["problems"] for one in told["files"]):
        if told["here"] or asked.options.host:
            screen.say(f"{told['title']}: no hooks installed.")
            if told["here"]:
                screen.hint(f"`takeback hook install {told['agent']}`.")
        return
    version = f" {told['version']}" if told["version"] else ""
    screen.say(f"{told['title']}{version}:")
    for one in told["files"]:
        if one["events"]:
            screen.say(
                f"  {one['level']:<7}  {from_here(one['file'])}  {counted(len(one['events']), 'hook')}"
            )
            screen.say(f"  shim     {said_shim(one['shim'])}")
        for problem in one["problems"]:
            screen.say(screen.paint(f"  {from_here(problem)}", "yellow"))
        if one["proof"]:
            screen.say(f"  proof    {clean(one['proof']['detail'])}")
    for plugin in told["plugins"]:
        screen.say(f"  plugin   {clean(plugin['name'])}, enabled in {from_here(plugin['file'])}")
    for obstacle in told["obstacles"]:
        screen.say(screen.paint(f"  {from_here(obstacle)}", "yellow"))
    if told["installed"]:
        screen.say(f"  mode     {told['mode']}: {told['why']}")
        screen.say(f"  If takeback is missing or broken: {clean(told['if_missing'])}.")


def _mode_at(settings: HookSettings) -> str:
    try:
        return mode_in(settings, content_of(settings.file))
    except TakebackError:
        return WATCH  # what keeps the file from being read is said elsewhere


TWICE_IN = (
    "Codex reads hooks of takeback in {} too: each event is asked twice and recorded once. Remove them there; takeback "
    "does not edit that file."
)
