"""`hook`: install takeback in a coding agent, take it out again, show what is installed, prove that it works."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from takeback.audit.views import effect_json
from takeback.errors import Misuse
from takeback.frontends.agents.hosts import NAMES, host
from takeback.frontends.agents.install import (
    SANDBOX,
    WATCH,
    HookSettings,
    content_of,
    further_hooks,
    further_settings,
    hosts_here,
    install,
    is_ours,
    mode_in,
    put_mode,
    refuse_no_sandbox,
    settings_of,
    uninstall,
    wanted_for,
    why_mode,
)
from takeback.frontends.agents.plugins import CLAUDE, PLUGIN_STAYS, plugins_in
from takeback.frontends.agents.settings import compiled_shim, shim_path
from takeback.frontends.cli.command import (
    DRY_RUN,
    RUN,
    Asked,
    Command,
    Subcommand,
    flag,
    option,
    positional,
)
from takeback.frontends.cli.output.screen import from_here, warn
from takeback.frontends.cli.session.project import at_terminal, confirmed
from takeback.frontends.cli.session.store import nothing_yet, opened, own_directory, session, store_path
from takeback.storage.sqlite.store import is_remote

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.effect import Effect

_HOST = positional("host", "AGENT", f"one of {', '.join(NAMES)}", nargs="?", choices=NAMES)
_WHERE = (
    flag("--user", "in your own settings, for all projects (the default)"),
    flag("--project", "in the settings of this project"),
)
_PARTS = {
    "install": Subcommand(
        "add takeback's hooks to the settings of an agent",
        "takeback hook install claude-code",
        (_HOST, *_WHERE, RUN, DRY_RUN),
    ),
    "uninstall": Subcommand(
        "remove takeback's hooks from the settings of an agent",
        "takeback hook uninstall claude-code",
        (_HOST, *_WHERE, RUN, DRY_RUN),
    ),
    "status": Subcommand(
        "show where hooks are installed and what keeps them from running",
        "takeback hook status",
        (_HOST, *_WHERE),
    ),
    "mode": Subcommand(
        "show or choose how an agent's shell commands are covered: watched, or run in a sandbox",
        "takeback hook mode sandbox claude-code",
        (
            positional(
                "mode", "MODE", "watch or sandbox; else it is shown", nargs="?", choices=(WATCH, SANDBOX)
            ),
            positional("host", "AGENT", f"one of {', '.join(NAMES)}", choices=NAMES),
            *_WHERE,
            RUN,
            DRY_RUN,
        ),
    ),
    "shim": Subcommand(
        "print the interpreter and the program that a hook starts, for a plugin that calls them itself",
        "takeback hook shim",
        (),
    ),
    "test": Subcommand(
        "run the agent itself, apart from your settings, and prove that its calls are recorded and come back",
        "takeback hook test claude-code",
        (
            positional("host", "AGENT", f"one of {', '.join(NAMES)}", choices=NAMES),
            *_WHERE,
            option("--program", "PATH", "the program of the agent; else the one on your PATH", default=""),
        ),
    ),
}


def _hook(asked: Asked) -> int:
    if asked.options.action == "shim":
        return _shim(asked)
    if asked.options.user and asked.options.project:
        raise Misuse("--user and --project exclude each other.", hint="Give one of them, or none for --user.")
    does = {"install": _install, "uninstall": _uninstall, "mode": _mode, "status": _status, "test": _test}
    return does[asked.options.action](asked)


def _shim(asked: Asked) -> int:
    import sys

    asked.screen.say(f"{sys.executable}\n{shim_path()}")
    told = {"interpreter": sys.executable, "program": shim_path(), "compiled": compiled_shim()}
    asked.screen.give(told)
    return 0


def _settings(asked: Asked, name: str) -> HookSettings:
    return settings_of(name, not asked.options.project, os.environ, os.getcwd())


def _install(asked: Asked) -> int:
    names = [asked.options.host] if asked.options.host else _chosen(asked)
    store = _named_store(asked)
    all_settings = [_settings(asked, name) for name in names]
    if asked.options.dry_run:
        return _would(
            asked, all_settings, [wanted_for(one, content_of(one.file), store) for one in all_settings]
        )
    told: list[dict[str, Any]] = []
    with opened(asked) as tb, session(asked, tb) as run:
        for settings in all_settings:
            effects = install(run, settings, store)
            asked.made.extend(one.id for one in effects)
            told.append(_told(settings, effects))
            _say_installed(asked, settings, effects)
        _note(tb, all_settings)
    asked.screen.give({"changed": any(one["changed"] for one in told), "hooks": told})
    return 0


def _named_store(asked: Asked) -> str:
    """The store that --store names; the hooks find the usual one by themselves."""
    if is_remote(store_path(asked)):
        raise Misuse(
            "Hooks need a store in a directory of this machine.",
            hint="Nothing was changed. Give a directory with --store, or none for the usual store.",
        )
    return os.path.abspath(store_path(asked)) if asked.options.store else ""


def _chosen(asked: Asked) -> list[str]:
    """No agent was named: those that are on this machine, if a person says so."""
    here = hosts_here(os.environ)
    if not here:
        raise Misuse("No coding agent was found on this machine.", hint=f"Name one of {', '.join(NAMES)}.")
    names = ", ".join(here)
    if not at_terminal(asked):
        raise Misuse(
            f"Name the agent. Found on this machine: {names}.", hint=f"`takeback hook install {here[0]}`."
        )
    chosen = [name for name in here if confirmed(f"Install takeback's hooks for {host(name).TITLE}?")]
    if not chosen:
        raise Misuse("No agent was chosen.", hint="Nothing was changed.")
    return chosen


def _say_installed(asked: Asked, settings: HookSettings, effects: "Sequence[Effect]") -> None:
    screen, one = asked.screen, settings.host
    shown = from_here(settings.file)
    if not effects:
        screen.say(f"takeback's hooks for {one.TITLE} were installed already in {shown}.")
    else:
        screen.say(f"Installed hooks for {one.TITLE} in {shown}: {screen.id(effects[-1].id)}")
        screen.say(f"Mode: {_said_mode(settings)}.\nSessions that are open now do not have them yet.")
        if not settings.user:
            screen.say("The hooks hold paths of this machine: do not commit this file.")
    if one.TRUST:
        screen.hint(one.TRUST)


def _uninstall(asked: Asked) -> int:
    names: Sequence[str] = [asked.options.host] if asked.options.host else NAMES
    all_settings = [_settings(asked, name) for name in names]
    found = [one for one in all_settings if is_ours(one, content_of(one.file))]
    if asked.options.dry_run:
        for one in found:
            asked.screen.say(f"Would remove takeback's hooks from {from_here(one.file)}.")
        asked.screen.give({"dry_run": True, "files": [one.file for one in found]})
        if not found:
            asked.screen.say(_nothing(asked, all_settings))
        return 0
    told: list[dict[str, Any]] = []
    if found:
        with opened(asked) as tb, session(asked, tb) as run:
            for settings in found:
                effects = uninstall(tb, run, settings)
                asked.made.extend(one.id for one in effects)
                told.append(_told(settings, effects))
                asked.screen.say(f"Removed takeback's hooks from {from_here(settings.file)}.")
            _note(tb, all_settings)
    else:
        asked.screen.say(_nothing(asked, all_settings))
        if not nothing_yet(asked):
            with opened(asked) as tb:
                _note(tb, all_settings)
    for one in all_settings:
        for other in further_hooks(one.host.NAME, os.environ, os.getcwd()):
            if other.user == one.user:
                asked.screen.hint(
                    f"Remove takeback's hooks from {from_here(other.file)} yourself: takeback does not edit that file."
                )
    if any(one.host.NAME == CLAUDE for one in all_settings) and plugins_in(os.environ, os.getcwd()):
        asked.screen.hint(PLUGIN_STAYS)
    asked.screen.give({"changed": bool(told), "hooks": told})
    return 0


def _note(tb: "Takeback", all_settings: Sequence[HookSettings]) -> None:
    """Which settings hold our hooks, so that it is noticed if someone else changes that."""
    from takeback.frontends.agents.evidence import installed

    names = dict.fromkeys(one.host.NAME for one in all_settings)
    further = [other for name in names for other in further_settings(name, os.environ, os.getcwd())]
    if not installed(tb.store.hook_note, *all_settings, *further):
        place = from_here(os.path.dirname(tb.store.hook_note))
        warn(
            f"takeback: The notes in {place} cannot be written, so it would not be noticed if the hooks were removed."
        )


def _nothing(asked: Asked, all_settings: Sequence[HookSettings]) -> str:
    level = "this project" if asked.options.project else "your user"
    if len(all_settings) > 1:
        return f"Changed nothing: no settings of an agent have hooks of takeback ({level})."
    said = f"{from_here(all_settings[0].file)} has no hooks of takeback ({level})."
    return said if asked.options.action == "mode" else f"Changed nothing: {said}"


def _would(asked: Asked, all_settings: Sequence[HookSettings], wanted: Sequence[bytes]) -> int:
    files: list[dict[str, Any]] = []
    for settings, content in zip(all_settings, wanted, strict=True):
        new = content != content_of(settings.file)
        files.append({"file": settings.file, "changes": new})
        shown = from_here(settings.file)
        asked.screen.say(
            f"Would install hooks for {settings.host.TITLE} in {shown}."
            if new
            else f"{shown} has them already."
        )
    asked.screen.give({"dry_run": True, "files": files})
    return 0


def _told(settings: HookSettings, effects: "Sequence[Effect]") -> dict[str, Any]:
    return {
        "agent": settings.host.NAME,
        "level": "user" if settings.user else "project",
        "file": settings.file,
        "changed": bool(effects),
        "effects": [effect_json(one) for one in effects],
    }


def _mode(asked: Asked) -> int:
    options, settings = asked.options, _settings(asked, asked.options.host)
    one, screen = settings.host, asked.screen
    effects: tuple[Effect, ...] = ()
    if options.mode == SANDBOX:
        refuse_no_sandbox(settings, own_directory(asked))
    changes = options.mode not in (None, mode_in(settings, content_of(settings.file)))
    if options.dry_run:
        screen.say(f"Would {f'choose mode {options.mode}' if changes else 'change nothing'} for {one.TITLE}.")
        screen.give({"dry_run": True, "changes": changes})
        return 0
    if changes:
        with opened(asked) as tb, session(asked, tb) as run:
            effects = put_mode(run, settings, options.mode, _named_store(asked))
            asked.made.extend(effect.id for effect in effects)
            _note(tb, [settings])
    content = content_of(settings.file)
    mode = mode_in(settings, content) if is_ours(settings, content) else ""
    why = why_mode(one, mode) if mode else ""
    screen.say(f"{one.TITLE}: mode {mode}, {why}." if mode else _nothing(asked, [settings]))
    if effects:
        screen.hint("Sessions that are open now keep the mode that they began with.")
    screen.give(_told(settings, effects) | {"mode": mode, "why": why})
    return 0


def _said_mode(settings: HookSettings) -> str:
    mode = mode_in(settings, content_of(settings.file))
    return f"{mode}, {why_mode(settings.host, mode)}"


def _test(asked: Asked) -> int:
    from takeback.frontends.cli.session.hook_proof import test_hooks

    return test_hooks(asked, _settings(asked, asked.options.host))


def _status(asked: Asked) -> int:
    from takeback.frontends.cli.session.hook_proof import show_status

    return show_status(asked)


def _looks(options: Any) -> bool:
    only = options.action in ("status", "test", "shim") or getattr(options, "dry_run", False)
    return only or (options.action == "mode" and not options.mode)


COMMAND = Command(_hook, mixed=True, parts=_PARTS, only_looks=_looks)
