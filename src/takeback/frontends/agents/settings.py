"""takeback's entries in the settings of a host: added, found and removed as data, all else stays as it was typed."""

import json
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, cast

from takeback.errors import Misuse, Refused
from takeback.frontends.agents import hosts
from takeback.frontends.agents.hosts import HookPoint, Host

_SHIM = re.compile(r"takeback/frontends/agents/shim\.py(?!\w)")
_HOOKS = "hooks"
_ENV, _PREFIX = "env", "CLAUDE_CODE_SHELL_PREFIX"
_STORE = "TAKEBACK_STORE"


class HookCommand(NamedTuple):
    """An entry of ours, as it stands in a settings file."""

    event: str
    command: str
    python: str = ""
    shim: str = ""
    store: str = ""
    compiled: str = ""  # empty if the interpreter is started at once


@cache
def shim_path() -> str:
    import takeback.frontends.agents as here

    return os.path.join(os.path.dirname(os.path.abspath(here.__file__ or "")), "shim.py")


def compiled_shim() -> str:
    """Beside the other one; empty where no compiler made one."""
    place = shim_path().removesuffix(".py")
    return place if os.path.isfile(place) and os.access(place, os.X_OK) else ""


def shim_words(name: str) -> list[str]:
    """What a hook of this host starts, but for the event. The compiled one becomes the rest where it cannot answer."""
    compiled = compiled_shim()
    return [*([compiled] if compiled else []), sys.executable, "-I", "-S", shim_path(), name]


def command_line(host: Host, point: HookPoint, store: str = "") -> str:
    """Of the hook. /bin/sh whatever shell the host uses, and around all of it: Cursor appends a here-document.

    Before a call anything but a clean end denies it, on every host. The rest of the input is read all the same: Codex
    runs the tool if it cannot write all of it. After a call, and for a prompt, a hook that is gone stops no one.
    """
    from shlex import join, quote

    if not sys.executable:
        raise Misuse(
            "This Python does not know its own path, so no hook can name it.",
            hint="Run takeback from an installation.",
        )
    call = join([*shim_words(host.NAME), point.name])
    if store:
        call = f"{_STORE}={quote(store)} {call}"
    if not point.before:
        return f"/bin/sh -c {quote(f'{call} || cat >/dev/null')}"
    lost = (
        "takeback is missing or broken, so this call did not run. "
        f"Switch it off: takeback hook uninstall {host.NAME} (or remove its hooks from the settings of {host.TITLE})."
    )
    known = f"[ $s -eq 2 ] && [ -f {quote(shim_path())} ]"
    return "/bin/sh -c " + quote(
        f'{call} || {{ s=$?; cat >/dev/null; {known} || echo "{lost}" >&2; exit 2; }}'
    )


def parsed_command(event: str, command: object) -> HookCommand | None:
    """None if it is not ours. A version of takeback that lives elsewhere is ours too."""
    if not isinstance(command, str) or not _SHIM.search(command):
        return None
    from shlex import split

    try:
        words = split(command)
        if words[:2] == ["/bin/sh", "-c"]:
            words = split(words[2])
    except (ValueError, IndexError):  # someone has edited it
        return HookCommand(event, command)
    store = words.pop(0).removeprefix(f"{_STORE}=") if words[:1] and words[0].startswith(f"{_STORE}=") else ""
    return _hook_command(event, command, words, store)


def _hook_command(event: str, command: str, words: list[str], store: str) -> HookCommand:
    at = next((at for at, word in enumerate(words) if _SHIM.search(word)), len(words))
    *before, python = ["", "", *(word for word in words[:at] if not word.startswith("-"))]
    return HookCommand(event, command, python, (*words, "")[at], store, before[-1])


# Documents.


def bytes_at(path: str) -> bytes:
    """Of a file. A pipe would keep us waiting, and a device would never end."""
    import errno
    import stat

    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        why = os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "It is not a regular file"
        raise OSError(errno.EINVAL, why, path)
    with open(handle, "rb") as file:
        return file.read()


def document_of(host: Host, path: str, data: bytes) -> dict[str, Any]:
    """What the file says; refused as the host would not understand it either, with the place of the mistake."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is not UTF-8 text (byte {error.start}).", hint=_FIX) from None
    if not text.strip():
        return {}
    if path.endswith(".toml"):
        return _toml_of(path, text)
    from takeback.adapters.config.json_edit import blanked, without_comments

    try:
        found = json.loads(without_comments(text) if host.COMMENTS else text)
    except json.JSONDecodeError as error:
        hint = _FIX
        if _parses(blanked(text)):
            what = "no trailing commas" if host.COMMENTS else "no comments and no trailing commas"
            hint = f"{host.TITLE} reads {what} here. {_FIX}"
        place = f"line {error.lineno}, column {error.colno}"
        raise Refused(f"{path} is not valid JSON: {place}: {error.msg}.", hint=hint) from None
    except RecursionError:
        raise Refused(f"{path} is nested too deeply.", hint=_FIX) from None
    if not isinstance(found, dict):
        raise Refused(f"{path} holds no JSON object.", hint=_FIX)
    return cast("dict[str, Any]", found)


def _toml_of(path: str, text: str) -> dict[str, Any]:
    """Read only: takeback writes its hooks into no TOML."""
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path} is not valid TOML: {error}.", hint=_FIX) from None


_FIX = "Nothing was changed. Fix the file, then try again."


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def commands_in(document: Any) -> Iterator[HookCommand]:
    """Ours, in the order of the file. Entries of another form than hooks have are not ours."""
    events = _object(_object(document).get(_HOOKS))
    for event, groups in events.items():
        for group in _list(groups):
            for one in (group, *_list(_object(group).get(_HOOKS))):
                if found := parsed_command(event, _object(one).get("command")):
                    yield found


def entries_in(document: Any) -> dict[str, list[Any]]:
    """The groups with our entries as they stand in the file: a host reads more of them than the command."""
    events = _object(_object(document).get(_HOOKS))
    found = {
        event: [one for one in _list(groups) if _without(one) is not one] for event, groups in events.items()
    }
    if is_sandboxed(document):
        found[_PREFIX] = [_object(_object(document).get(_ENV))[_PREFIX]]
    return {event: groups for event, groups in found.items() if groups}


def with_hooks(host: Host, path: str, document: dict[str, Any], store: str = "") -> dict[str, Any]:
    """Each event has our entry once, at its old place or at the end: Codex trusts hooks by their position."""
    hooks = document.get(_HOOKS, {})
    if not isinstance(hooks, dict):
        raise Refused(f"{path}: `hooks` is not an object.", hint=_FIX)
    wanted = dict(cast("dict[str, Any]", hooks))
    ours = {point.name: host.entry(point, command_line(host, point, store)) for point in host.EVENTS}
    for event in {**wanted, **ours}:
        groups = wanted.get(event, [])
        if not isinstance(groups, list):
            if event in ours:
                raise Refused(f"{path}: `hooks.{event}` is not a list.", hint=_FIX)
            continue
        listed = _replaced(cast("list[Any]", groups), ours.get(event))
        if listed or event not in ours:
            wanted[event] = listed
    return {**host.PREAMBLE, **document, _HOOKS: wanted}


def _replaced(groups: list[Any], ours: dict[str, Any] | None) -> list[Any]:
    kept: list[Any] = []
    for group in groups:
        rest = _without(group)
        if rest is group:
            kept.append(group)
        elif ours is not None:
            kept.append(ours)
            ours = None
            kept += [] if rest is None else [rest]
        elif rest is not None:
            kept.append(rest)
    return kept if ours is None else [*kept, ours]


def without_hooks(document: dict[str, Any]) -> dict[str, Any]:
    """The document without our entries, and without the lists that only they were in."""
    hooks = document.get(_HOOKS)
    if not isinstance(hooks, dict):
        return document
    kept: dict[str, Any] = {}
    for event, groups in cast("dict[str, Any]", hooks).items():
        listed = cast("list[Any]", groups) if isinstance(groups, list) else None
        rest = None if listed is None else [one for group in listed if (one := _without(group)) is not None]
        if rest is None or rest or not listed:
            kept[event] = groups if rest is None or rest == listed else rest
    if kept == hooks:
        return document
    return {**document, _HOOKS: kept} if kept else {key: document[key] for key in document if key != _HOOKS}


# The program before each command, in mode `sandbox`. So far only Claude Code has a setting for it.


def shell_prefix(store: str = "") -> str:
    """Claude Code takes the last " -" for the end of the program's path, and all after it as it stands."""
    from shlex import quote

    place = prefix_path()
    if " -" in f"{sys.executable} {place} {store}":
        raise Refused(
            "Claude Code cannot start a program before a command whose path holds ` -`.",
            hint="Nothing was changed. Install takeback, or put the store, in a directory with another name.",
        )
    return " ".join((sys.executable, "-IS", quote(place), *([quote(store)] if store else [])))


def prefix_path() -> str:
    return os.path.join(os.path.dirname(shim_path()), "sandboxed.py")


def switches_off(document: Any) -> bool:
    """Whether Claude Code, with these settings beside others, runs no hooks or puts another program before commands."""
    said = _object(document)
    switches = (said.get(name) is True for name in ("disableAllHooks", "allowManagedHooksOnly"))
    return any(switches) or (_PREFIX in _object(said.get(_ENV)) and not is_sandboxed(said))


def is_sandboxed(document: Any) -> bool:
    return hosts.is_prefix(_object(_object(document).get(_ENV)).get(_PREFIX))


def with_sandbox(path: str, document: dict[str, Any], store: str = "") -> dict[str, Any]:
    env = document.get(_ENV, {})
    if not isinstance(env, dict):
        raise Refused(f"{path}: `env` is not an object.", hint=_FIX)
    if _PREFIX in env and not is_sandboxed(document):
        raise Refused(
            f"{path} sets {_PREFIX} already, and Claude Code starts one program before a command.",
            hint="Nothing was changed. Remove it there, then try again.",
        )
    return {**document, _ENV: {**cast("dict[str, Any]", env), _PREFIX: shell_prefix(store)}}


def without_sandbox(document: dict[str, Any]) -> dict[str, Any]:
    if not is_sandboxed(document):
        return document
    env = {name: value for name, value in _object(document.get(_ENV)).items() if name != _PREFIX}
    return {**document, _ENV: env} if env else {name: document[name] for name in document if name != _ENV}


_SWITCHES = ("disableAllHooks", "hooksConfig")  # what makes a host run no hooks, though they are there


def only_hooks(host: Host, path: str, data: bytes, is_plugin: bool) -> bytes:
    """A copy for a test: our entries and the program before commands, for the usual store, and the switches."""
    if is_plugin:
        return re.sub(rb'^const STORE = ".*"$', b'const STORE = ""', data, count=1, flags=re.MULTILINE)
    from shlex import quote, split

    document = document_of(host, path, data)
    hooks: dict[str, Any] = {}
    for event, groups in _object(document.get(_HOOKS)).items():
        if not isinstance(groups, list):
            hooks[event] = groups  # a switch, in older versions of Gemini CLI
        elif kept := [one for group in cast("list[Any]", groups) if (one := _only_ours(event, group))]:
            hooks[event] = kept
    switches = {name: document[name] for name in _SWITCHES if name in document}
    if is_sandboxed(document):
        before, _, rest = str(_object(document[_ENV])[_PREFIX]).partition(" -IS ")
        switches[_ENV] = {_PREFIX: f"{before} -IS {quote(split(rest)[0])}"}
    return json.dumps({**host.PREAMBLE, **switches, _HOOKS: hooks}).encode()


def _only_ours(event: str, group: Any) -> dict[str, Any] | None:
    """A group, or an entry without one, with our commands alone."""
    if found := parsed_command(event, _object(group).get("command")):
        return {**group, "command": _without_store(found)}
    inner = [
        {**one, "command": _without_store(found)}
        for one in _list(_object(group).get(_HOOKS))
        if (found := parsed_command(event, _object(one).get("command")))
    ]
    return {**group, _HOOKS: inner} if inner else None


def _without_store(found: HookCommand) -> str:
    if not found.store:
        return found.command
    from shlex import join, quote, split

    words, named = split(found.command), f"{_STORE}={quote(found.store)} "
    if len(words) == 3 and words[2].startswith(named):
        return join([*words[:2], words[2].removeprefix(named)])
    raise Refused(
        f"The hook for {found.event} was edited, so it cannot be copied for a test.",
        hint="`takeback hook install` writes it again.",
    )


def rest_of(host: Host, document: dict[str, Any]) -> dict[str, Any]:
    """What is not ours, without empty lists: two documents alike in this differ only by an installation."""
    document = without_sandbox(document)
    hooks = _object(without_hooks(document).get(_HOOKS))
    kept = {event: groups for event, groups in hooks.items() if groups != []}
    return {**host.PREAMBLE, **document, _HOOKS: kept}


def _without(group: Any) -> Any:
    """A group without our commands; itself if there are none, None if nothing else is in it."""
    if parsed_command("", _object(group).get("command")):
        return None
    inner = _list(_object(group).get(_HOOKS))
    rest = [one for one in inner if not parsed_command("", _object(one).get("command"))]
    if len(rest) == len(inner):
        return group
    return {**group, _HOOKS: rest} if rest else None


def rewritten(host: Host, data: bytes | None, wanted: dict[str, Any]) -> bytes:
    """The file as it shall be: changed in the smallest steps."""
    if data is None or not data.strip():
        return (json.dumps(wanted, indent=2, ensure_ascii=False) + "\n").encode()
    from takeback.adapters.config import formats

    return formats.rewritten("jsonc" if host.COMMENTS else "json", data, wanted)


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


# The plugin of opencode: a file of its own, not an entry.


def plugin_text(host: Host, store: str = "") -> bytes:
    """The plugin, with the paths of this installation in it."""
    place = os.path.join(os.path.dirname(os.path.abspath(hosts.__file__)), "opencode.js")
    with open(place, encoding="utf-8") as file:
        text = file.read()
    return (
        text.replace('["TAKEBACK"]', json.dumps(shim_words(host.NAME)))
        .replace('"STORE"', json.dumps(store))
        .encode()
    )


def plugin_commands(data: bytes) -> tuple[HookCommand, ...]:
    """Ours if the file is a plugin that this or another version wrote."""
    text = data.decode("utf-8", "replace")
    found = re.search(r"^const SHIM = (\[.*\])$", text, re.MULTILINE)
    if not found or not _SHIM.search(text):
        return ()
    try:
        words = json.loads(found[1])
    except ValueError:
        return (HookCommand("plugin", text),)
    store = re.search(r'^const STORE = (".*")$', text, re.MULTILINE)
    return (_hook_command("plugin", found[1], words, json.loads(store[1]) if store else ""),)
