"""Commands for a person, which an agent cannot carry out."""

import os
import stat
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from takeback.errors import Refused
from takeback.frontends.cli.session.store import local_store
from takeback.runs.agent_above import agent_above, refuse_below_agent

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.plan import UndoResult


def refuse_of_agent(name: str, actions: Collection[str], options: Namespace) -> None:
    """A command for a person; of some only these subcommands. Looking is allowed, and a store of the agent's own."""
    if getattr(options, "dry_run", False):
        return
    action = getattr(options, "action", "")
    if (actions and action not in actions) or (action == "make" and not _was_removed(options)):
        return
    refuse_below_agent(f"`takeback {f'{name} {action}'.strip()}`", path=local_store(options))


_READS = 1 << 2  # CAP_DAC_READ_SEARCH: the library may lie where only root can read


def work_as_owner(options: Namespace) -> None:
    """Root decides in the store of another user, as the effective user that it belongs to: everything written there
    stays that user's. The real one is still root, and that is who is recorded."""
    place = local_store(options)
    if os.geteuid() != 0:
        return
    try:
        status = os.lstat(place)
    except OSError:
        return
    if status.st_uid == 0 or not stat.S_ISDIR(status.st_mode):
        return
    import pwd

    from takeback.sandbox.calls import kernel

    calls = kernel()  # loaded while everything can be read
    os.setgroups([])
    os.setegid(status.st_gid)
    os.seteuid(status.st_uid)
    calls.keep_capabilities(_READS)
    for name in [one for one in os.environ if one.startswith("XDG_")]:
        del os.environ[name]
    try:
        os.environ["HOME"] = pwd.getpwuid(status.st_uid).pw_dir
    except KeyError:
        os.environ["HOME"] = os.path.dirname(place)


def refuse_secrets(options: Namespace) -> None:
    if found := agent_above(local_store(options)):
        raise Refused(
            f"--secrets is for a person, and {found.title} started this command ({found.seen}).",
            hint="Without it the answer is the same, with secrets masked.",
        )


def _was_removed(options: Namespace) -> bool:
    from takeback.storage.sqlite.store import exists, was_there

    path = os.path.abspath(local_store(options))
    return not exists(path) and bool(was_there(path))


# Undo is allowed below an agent, but not of the installation of the hooks.


def undone_settings(
    tb: "Takeback", carry_out: "Callable[..., UndoResult]", wishes: Mapping[str, Any]
) -> "UndoResult":
    """The undo. If it changes settings that hold our hooks, a person must have asked for it; then that is known."""
    note = tb.store.hook_note
    if not note or wishes.get("dry_run") or not os.path.exists(note):
        return carry_out(**wishes)
    from takeback.frontends.agents.evidence import installed, kept, settings_at

    known = kept(note).settings
    if known and (found := agent_above(tb.store.path)):
        touched = _paths(carry_out(**{**wishes, "dry_run": True})) & known.keys()
        if touched:
            raise Refused(
                f"{min(touched)} holds takeback's hooks, and {found.title} started this command ({found.seen}).",
                hint="Nothing was changed. A person can undo it in a terminal that no agent started.",
            )
        return carry_out(**wishes)
    result = carry_out(**wishes)
    if touched := _paths(result) & known.keys():
        installed(note, *settings_at({path: known[path] for path in touched}))
    return result


def _paths(result: "UndoResult") -> set[str]:
    from takeback.model.resource import path_of

    return {os.fsdecode(path_of(one.resource)) for one in result.targets if one.resource.startswith("file:")}
