"""Put takeback's hooks into the settings of a host, and take them out again. Each change is an effect."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from takeback.errors import Drifted, PreconditionFailed, Refused, TakebackError
from takeback.frontends.agents.hosts import NAMES, Host, host
from takeback.frontends.agents.settings import (
    HookCommand,
    bytes_at,
    commands_in,
    document_of,
    is_sandboxed,
    plugin_commands,
    plugin_text,
    rest_of,
    rewritten,
    with_hooks,
    with_sandbox,
    without_hooks,
    without_sandbox,
)

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.effect import Effect
    from takeback.runs.run import Run


WATCH, SANDBOX = "watch", "sandbox"


class HookSettings(NamedTuple):
    """The file that holds the hooks of a host."""

    host: Host
    user: bool  # of the person; else of one project
    file: str

    @property
    def is_plugin(self) -> bool:
        return self.file.endswith(".js")


def settings_of(name: str, user: bool, env: Mapping[str, str], project: str) -> HookSettings:
    one = host(name)
    directory = one.user_directory(env) if user else os.path.join(project, one.PROJECT)
    return HookSettings(one, user, one.settings_file(os.path.abspath(directory), user))


def further_settings(name: str, env: Mapping[str, str], project: str) -> tuple[HookSettings, ...]:
    """Files that takeback never writes and the host reads hooks in: `[hooks]` in the `config.toml` of Codex."""
    if name != "codex":
        return ()
    known = (settings_of(name, user, env, project) for user in ((True, False) if project else (True,)))
    return tuple(one._replace(file=os.path.join(os.path.dirname(one.file), "config.toml")) for one in known)


def further_hooks(name: str, env: Mapping[str, str], project: str) -> tuple[HookSettings, ...]:
    """Those in which someone has put takeback's hooks."""
    found: list[HookSettings] = []
    for one in further_settings(name, env, project):
        with suppress(TakebackError):  # that it cannot be read is said elsewhere
            found += [one] if found_in(one, content_of(one.file)) else []
    return tuple(found)


def is_installed(name: str, env: Mapping[str, str]) -> bool:
    """Whether the host itself is on this machine: its program, or its settings."""
    from shutil import which

    one = host(name)
    return bool(which(one.PROGRAM, path=env.get("PATH"))) or os.path.isdir(one.user_directory(env))


def hosts_here(env: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name in NAMES if is_installed(name, env))


def found_in(settings: HookSettings, data: bytes | None) -> tuple[HookCommand, ...]:
    """Our entries; refused if the file cannot be understood."""
    if data is None:
        return ()
    if settings.is_plugin:
        return plugin_commands(data)
    return tuple(commands_in(document_of(settings.host, settings.file, data)))


def mode_in(settings: HookSettings, data: bytes | None) -> str:
    """How shell commands are covered: `watch` or `sandbox`."""
    if data is None or settings.is_plugin:
        return WATCH
    return SANDBOX if is_sandboxed(document_of(settings.host, settings.file, data)) else WATCH


def is_ours(settings: HookSettings, data: bytes | None) -> bool:
    """Whether there is anything of takeback in the file."""
    return bool(found_in(settings, data)) or mode_in(settings, data) == SANDBOX


def why_mode(one: Host, mode: str) -> str:
    if mode == SANDBOX:
        return "you chose it: a command that fails leaves nothing; one in the background is watched"
    if one.NO_SANDBOX:
        return f"because {one.NO_SANDBOX}"
    return f"the usual one; `takeback hook mode {SANDBOX} {one.NAME}` chooses the other"


def refuse_no_sandbox(settings: HookSettings, store: str) -> None:
    """Where commands could not run in one."""
    from takeback.sandbox.ability import ability

    one = settings.host
    if one.NO_SANDBOX:
        raise Refused(
            f"{one.TITLE} cannot run its commands in a sandbox of takeback: {one.NO_SANDBOX}.",
            hint="Nothing was changed. Its commands are watched.",
        )
    if not found_in(settings, content_of(settings.file)):
        raise Refused(
            f"{settings.file} has no hooks of takeback.",
            hint=f"Nothing was changed. First run `takeback hook install {one.NAME}`.",
        )
    if not (able := ability(store)).engine:
        raise Refused(
            f"There is no sandbox here: {able.why}",
            hint="Commands are watched; `takeback doctor` says more.",
        )


def put_mode(run: "Run", settings: HookSettings, mode: str, store: str = "") -> "tuple[Effect, ...]":
    """Nothing if it is the mode already. `store`: as for `install`."""
    data = content_of(settings.file)
    if data is None or settings.is_plugin:
        return ()
    document = document_of(settings.host, settings.file, data)
    wanted = with_sandbox(settings.file, document, store) if mode == SANDBOX else without_sandbox(document)
    if wanted == document:
        return ()
    return tuple(written(run, settings.file, data, rewritten(settings.host, data, wanted)))


def content_of(path: str) -> bytes | None:
    """None if there is no file."""
    try:
        return bytes_at(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refused(
            f"{path} cannot be read: {error.strerror}.",
            hint="Nothing was changed. Check the file and your rights.",
        ) from None


def wanted_for(settings: HookSettings, data: bytes | None, store: str = "") -> bytes:
    """The content with our hooks, each once."""
    if settings.is_plugin:
        if data is not None and not plugin_commands(data):
            raise Refused(
                f"{settings.file} is not a plugin of takeback.",
                hint="Nothing was changed. Move the file away, then try again.",
            )
        return plugin_text(settings.host, store)
    document = document_of(settings.host, settings.file, data or b"")
    wanted = with_hooks(settings.host, settings.file, document, store)
    return data if data is not None and wanted == document else rewritten(settings.host, data, wanted)


def install(run: "Run", settings: HookSettings, store: str = "") -> "tuple[Effect, ...]":
    """What was done; nothing if the hooks are there as they should be."""
    data = content_of(settings.file)
    wanted = wanted_for(settings, data, store)
    return tuple(written(run, settings.file, data, wanted)) if wanted != data else ()


def written(run: "Run", path: str, data: bytes | None, wanted: bytes) -> "Iterator[Effect]":
    """Put the new content into the file, if it still has the content that was read (None: it does not exist)."""
    directory = os.path.dirname(path)
    if not os.path.isdir(directory) and (made := run.mkdir(directory, parents=True)):
        yield made

    def unchanged() -> bool:
        return content_of(path) == data

    try:
        effect = run.write(path, wanted, expects=unchanged)
    except (PreconditionFailed, Drifted) as error:
        raise Drifted(
            f"{path} was modified while takeback edited it.", hint="Nothing was changed. Try again."
        ) from error
    if effect:
        yield effect


def uninstall(tb: "Takeback", run: "Run", settings: HookSettings) -> "tuple[Effect, ...]":
    """The bytes before the installation, if the file is as the installation left it; else without our entries."""
    done: list[Effect] = []
    while is_ours(settings, data := content_of(settings.file)):
        assert data is not None
        if undone := _undone(tb, settings, data):
            done += undone
            continue
        if settings.is_plugin:
            effect = run.delete(settings.file)
            done += [effect] if effect else []
        else:
            document = without_hooks(without_sandbox(document_of(settings.host, settings.file, data)))
            done += written(run, settings.file, data, rewritten(settings.host, data, document))
        break
    return tuple(done)


def _undone(tb: "Takeback", settings: HookSettings, data: bytes) -> "list[Effect]":
    """Take the installation back that left this content. Empty if there is none, or if that cannot be done."""
    from takeback.model.effect import State

    path = os.path.realpath(settings.file)
    for effect in tb.effects(path=path, state=State.DONE, newest=True, limit=10):
        if not _left(tb, effect, settings, data):
            continue
        try:
            taken = tb.undo(effect.id)
            directory = os.path.dirname(settings.file)
            made = [] if os.path.lexists(settings.file) else _made_directory(tb, directory)
            for one in made:
                tb.undo(one.id)
        except TakebackError:
            return []
        return [tb.effect(one.id) for one in (*taken.effects, *made)]
    return []


def _left(tb: "Takeback", effect: "Effect", settings: HookSettings, data: bytes) -> bool:
    """Whether this effect brought our hooks into the file, nothing else, and the file is as it left it."""
    from takeback.api import opened_of
    from takeback.model.content import name_of

    if effect.is_undo or len(effect.targets) != 1 or effect.change.kind != "write":
        return False
    before, after = effect.targets[0].before, effect.targets[0].after
    if after.get("digest") != name_of(data).hex():
        return False
    if settings.is_plugin:
        return True
    old = b"".join(opened_of(tb).parts.blobs.read(before["digest"])) if before.get("digest") else b""
    was = document_of(settings.host, settings.file, old)
    now = document_of(settings.host, settings.file, data)
    return rest_of(settings.host, was) == rest_of(settings.host, now)


def _made_directory(tb: "Takeback", directory: str) -> "list[Effect]":
    """The effect that made the directory for the settings, if nothing else is in it."""
    from takeback.model.effect import State
    from takeback.model.resource import path_of

    if not os.path.isdir(directory) or os.listdir(directory):
        return []
    around = tb.effects(path=directory, state=State.DONE, newest=True)
    return [
        one
        for one in around
        if one.change.kind == "mkdir" and path_of(one.change.resource) == os.fsencode(directory)
    ][:1]
