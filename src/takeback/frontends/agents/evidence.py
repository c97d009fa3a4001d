"""What happened to takeback itself that the guard did not refuse: seen by comparing with a note outside of the store.

The note says which settings hold our hooks, which daemon runs, and what a person has not read yet. Without it nothing
is noticed, and everything else works.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast

from takeback.errors import TakebackError
from takeback.frontends.agents.hosts import NAMES, host
from takeback.frontends.agents.install import HookSettings, content_of, further_hooks, settings_of
from takeback.frontends.agents.plugins import CLAUDE, digest_at, files_of, is_enabled, place_of, plugins_in
from takeback.frontends.agents.settings import document_of, entries_in, plugin_commands
from takeback.storage.notes import has_home, read_outside, write_outside

_MOST = 50  # sentences that wait for a person
_BESIDE = ("settings.json", "settings.local.json", "hooks.json", "config.toml")  # where a host's switches are


class Noticed(NamedTuple):
    at: int  # microseconds since 1970
    words: str


class Kept(NamedTuple):
    """The note."""

    settings: Mapping[
        str, Mapping[str, str]
    ] = {}  # by path: `host`, `digest` of our entries, `project` or nothing
    seen: Mapping[
        str, Mapping[str, Any]
    ] = {}  # by host and project: what kept its hooks from running at that time
    plugins: Mapping[
        str, Mapping[str, str]
    ] = {}  # by directory: `name`, `file` that enables it, `data`, `digest` of its hooks, `project` or nothing
    daemon: Mapping[str, Any] = {}  # the process that runs; empty if it ended by itself
    noticed: tuple[Noticed, ...] = ()


_NOTHING = Kept()


def kept(note: str) -> Kept:
    try:
        told = json.loads(read_outside(note) or b"{}")
        noticed = tuple(Noticed(int(at), str(words)) for at, words in told.get("noticed", ()))
        settings, seen, plugins = (_objects(told.get(name)) for name in ("settings", "seen", "plugins"))
        return Kept(settings, seen, plugins, _object(told.get("daemon")), noticed)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return Kept()  # a note that cannot be read is no note


def change(note: str, changed: Callable[[Kept], Kept]) -> bool:
    """One process after the other; whether the note could be written."""
    if not note:
        return True
    import fcntl

    with suppress(OSError):
        if has_home(os.path.dirname(note)):
            os.makedirs(os.path.dirname(note), 0o700, exist_ok=True)
    try:
        place = os.open(os.path.dirname(note), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with suppress(OSError):
            fcntl.flock(place, fcntl.LOCK_EX)
        before = kept(note)
        after = changed(before)
        if after == before and os.path.exists(note):
            return True
        return write_outside(note, json.dumps(after._asdict()).encode())
    finally:
        os.close(place)


def notice(note: str, *sentences: str) -> bool:
    """For the next commands: each is there once, until a person has read it."""

    def changed(before: Kept) -> Kept:
        known = {one.words for one in before.noticed}
        fresh = [Noticed(time.time_ns() // 1000, one) for one in sentences if one not in known]
        return before._replace(noticed=(*before.noticed, *fresh)[-_MOST:])

    return change(note, changed)


def was_read(note: str) -> None:
    change(note, lambda before: before._replace(noticed=()))


# The settings.


def installed(note: str, *all_settings: HookSettings) -> bool:
    """These hold our hooks from now on, as they do now; or do not any more, if takeback removed them."""

    def changed(before: Kept) -> Kept:
        settings = dict(before.settings)
        for one in all_settings:
            digest = digest_of(one)
            settings.pop(one.file, None)
            if digest:
                project = "" if one.user else os.path.dirname(os.path.dirname(one.file))
                settings[one.file] = {"host": one.host.NAME, "digest": digest, "project": project}
        plugins = {root: one for root, one in before.plugins.items() if not _switched_off(one)}
        return before._replace(settings=settings, plugins=plugins)

    return change(note, changed)


def settings_at(known: Mapping[str, Mapping[str, str]]) -> list[HookSettings]:
    """As `installed` takes them, from the note."""
    return [
        HookSettings(host(one["host"]), not one.get("project"), path)
        for path, one in known.items()
        if one.get("host") in NAMES
    ]


def digest_of(settings: HookSettings) -> str:
    """Of our entries; empty if there are none, or the file cannot be read."""
    import hashlib

    try:
        data = content_of(settings.file)
        if data is None:
            return ""
        if settings.is_plugin:
            said = data if plugin_commands(data) else b""
        else:
            entries = entries_in(document_of(settings.host, settings.file, data))
            said = json.dumps(entries, sort_keys=True, default=str).encode() if entries else b""
    except TakebackError:
        return ""
    return hashlib.sha256(said).hexdigest() if said else ""


def settings_troubles(found: Kept, project: str, env: Mapping[str, str]) -> Iterator[str]:
    """What is different now; of other projects nothing is said."""
    for path, told in found.settings.items():
        name, where = told.get("host", ""), told.get("project", "")
        if name not in NAMES or (where and not _is_below(project, where)):
            continue
        if not os.path.isdir(os.path.dirname(os.path.dirname(path))):
            continue  # the whole project was removed, or the home directory is not mounted
        one = host(name)
        digest = digest_of(HookSettings(one, not where, path))
        if not digest:
            yield (
                f"{path} has no hooks of takeback any more. `takeback hook install {name}` puts them back; "
                f"`takeback hook uninstall {name}` if you removed them."
            )
        elif digest != told.get("digest"):
            yield (
                f"takeback's hooks in {path} were modified. `takeback hook install {name}` writes them again; "
                "`takeback hook status` shows them."
            )
    for root, told in found.plugins.items():
        if not told.get("project") or _is_below(project, told["project"]):
            yield from _plugin_troubles(root, told)
    for key, told in found.seen.items():
        name, _, where = key.partition(" ")
        if name in NAMES and where == project and told.get("signature") != signature(name, env, project):
            from takeback.frontends.agents.obstacles import obstacles

            before = told.get("obstacles", ())
            yield from (one for one in obstacles(name, env, project) if one not in before)


def _plugin_troubles(root: str, told: Mapping[str, str]) -> Iterator[str]:
    name = told.get("name", "")
    if _switched_off(told):
        yield (
            f"{told['file']} does not enable takeback's plugin any more. `claude plugin enable {name}` switches it on; "
            f"`takeback hook uninstall {CLAUDE}` if you switched it off."
        )
    elif not (digest := digest_at(root)):
        yield f"takeback's plugin in {root} was removed, so its hooks do not run. `claude plugin list` shows it."
    elif digest != told.get("digest"):
        yield f"takeback's plugin in {root} was modified. `claude plugin list` shows it."


def _switched_off(told: Mapping[str, str]) -> bool:
    return bool(told.get("file")) and not is_enabled(told.get("name", ""), told["file"])


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


def signature(name: str, env: Mapping[str, str], project: str, more: Kept = _NOTHING) -> list[list[int]]:
    """Changes when a settings file of the host does, or one in which we have hooks."""
    found: list[list[int]] = []
    for place in (host(name).user_directory(env), os.path.join(project, host(name).PROJECT)):
        # Most projects have none, and four errors take longer than one question.
        there = os.path.isdir(place)
        found += [_signed(f"{place}/{file}") if there else [] for file in _BESIDE]
    ours = [path for root in more.plugins for path in files_of(root)]
    ours += [told["file"] for told in more.plugins.values() if told.get("file")]
    return [*found, *map(_signed, (*more.settings, *ours))]


def _signed(path: str) -> list[int]:
    try:
        status = os.stat(path)
    except OSError:
        return []
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def seen_now(note: str, name: str, env: Mapping[str, str], project: str) -> bool:
    """A hook of this host runs in this project, so what the settings say now does not keep it from running."""
    from takeback.frontends.agents.obstacles import obstacles

    places = [settings_of(name, user, env, project) for user in (True, False)]
    places += further_hooks(name, env, project)
    fresh = [one for one in places if one.file not in kept(note).settings]
    told = {"signature": signature(name, env, project), "obstacles": list(obstacles(name, env, project))}
    plugin = _plugin_seen(env, project) if name == CLAUDE else {}

    def changed(before: Kept) -> Kept:
        files = {one["file"] for one in plugin.values()} - {""}
        others = {root: one for root, one in before.plugins.items() if one.get("file") not in files}
        return before._replace(
            seen={**before.seen, f"{name} {project}": told},
            plugins={**others, **plugin} if plugin else before.plugins,
        )

    written = change(note, changed)
    return (not fresh or installed(note, *fresh)) and written


def _plugin_seen(env: Mapping[str, str], project: str) -> dict[str, dict[str, str]]:
    """The plugin whose hook runs. One that is loaded by an option of the command line is enabled in no file."""
    if not (root := place_of(env)):
        return {}
    name, file = next(iter(plugins_in(env, project)), ("", ""))
    local = os.path.dirname(os.path.dirname(file))
    about = {"name": name, "file": file, "data": env.get("CLAUDE_PLUGIN_DATA", ""), "digest": digest_at(root)}
    return {
        root: {
            **about,
            "project": local if file and _is_below(file, os.path.join(project, ".claude")) else "",
        }
    }


# The daemon.


def daemon_trouble(found: Kept, store: str = "") -> str:
    """Of one that ended without a word. After a restart of the machine that is nothing. `store`: where a daemon that
    lives holds its lock, also one in another container."""
    from takeback.adapters.watch.processes import lives
    from takeback.model.boot_clock import boot_id

    process = dict(found.daemon)
    if not process or process.get("boot") != boot_id():
        return ""
    if lives(process) or (store and _is_locked(os.path.join(store, "hooks", "lock"))):
        return ""
    return (
        f"takeback's daemon (process {process.get('pid')}) ended without a word: it was killed, or it crashed. "
        "Changes that were made without it are recorded with the next call."
    )


def _is_locked(path: str) -> bool:
    import fcntl

    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(lock)
    return False


def daemon_runs(note: str) -> bool:
    """This process does, from now on. What became of the one before is noted for a person."""
    from takeback.adapters.watch.processes import identity

    if trouble := daemon_trouble(kept(note)):
        notice(note, trouble)
    process = identity(os.getpid())
    return change(note, lambda before: before._replace(daemon=process))


def daemon_ends(note: str) -> None:
    """By itself."""
    mine = os.getpid()
    change(
        note, lambda before: before._replace(daemon={} if before.daemon.get("pid") == mine else before.daemon)
    )


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _objects(value: Any) -> dict[str, dict[str, Any]]:
    return {key: _object(one) for key, one in _object(value).items()}
