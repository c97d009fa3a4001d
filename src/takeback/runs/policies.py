"""Which files of rules count for a change: of the administrator, of the user, of the projects it touches.

Where there is none, that is all that is loaded; `policy_files` reads one.
"""

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from takeback.model.database import file_of
from takeback.model.resource import SCHEME, file_resource, home, path_of
from takeback.storage.store import Store

if TYPE_CHECKING:
    from takeback.policy.decide import InForce
    from takeback.policy.rules import Policy
    from takeback.runs.policy_files import PolicyFiles

ADMINISTRATOR = "/etc/takeback/config.toml"
PROJECT_FILE = "takeback.toml"
_USER_FILE = "takeback/config.toml"
KEPT = "policy"  # the directory of a store with compiled copies
_MOST = 256  # resources of a change that are looked at for the project they lie in
_DIRECTORIES = 32


def user_files() -> tuple[str, ...]:
    """The one that the environment names; and the one in the home directory that the system knows, so that a variable
    does not switch it off."""
    import pwd

    found: dict[str, None] = {}
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(configured):
        found[os.path.join(configured, _USER_FILE)] = None
    homes = [home()]
    try:
        homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        pass
    for one in homes:
        if os.path.isabs(one):
            found[os.path.join(one, ".config", _USER_FILE)] = None
    return tuple(found)


class Policies:
    """Called for every change; the files may change at any time."""

    def __init__(
        self, store: Store, project_of: Callable[[str], str], administrator: str = ADMINISTRATOR
    ) -> None:
        self._store = store
        self._project_of = project_of  # of a run, as a resource
        self.administrator = administrator
        self.users = user_files()
        self._files: PolicyFiles | None = None
        self._kept = os.path.join(store.path, KEPT)

    @property
    def always(self) -> tuple[str, ...]:
        """Files that count wherever a change is made, as resources."""
        return tuple(map(file_resource, (self.administrator, *self.users)))

    def __call__(self, run: str, resources: Iterable[str]) -> "InForce | None":
        found = [one for one in (self.administrator, *self.users) if os.path.lexists(one)]
        projects = self.project_files(run, resources)
        if not found and not projects and self._files is None and not os.path.isdir(self._kept):
            return None
        policy = self.files.policy(tuple(found), projects)
        if not policy.layers:
            return None
        from takeback.policy.decide import InForce, no_conditions

        if any(
            rule.when for layer in policy.layers for rule in (*layer.rules, *(b.rule for b in layer.budgets))
        ):
            from takeback.runs.conditions import compiled

            return InForce(policy, compiled)
        return InForce(policy, no_conditions)

    @property
    def files(self) -> "PolicyFiles":
        if self._files is None:
            from takeback.runs.policy_files import PolicyFiles

            self._files = PolicyFiles(self._store, self._kept, self.administrator, self.users)
        return self._files

    def in_force(self) -> None:
        """Before a change is recorded: which files counted is recorded too, if that is another than before."""
        if self._files is not None:
            self._files.record()

    def at(self, directory: str, run: str = "") -> "Policy":
        """For looking: what would count for a change there."""
        found = tuple(one for one in (self.administrator, *self.users) if os.path.lexists(one))
        return self.files.policy(found, self.project_files(run, (file_resource(directory),)))

    def project_files(self, run: str, resources: Iterable[str]) -> tuple[str, ...]:
        """In the project of the run, and in each directory around what is changed."""
        starts: dict[bytes, None] = {}
        if run and (root := self._project_of(run)):
            starts[path_of(root)] = None
        for number, one in enumerate(resources):
            if number >= _MOST or len(starts) >= _DIRECTORIES:
                break
            one = file_of(one)  # a database in a file lies in a project, too
            if one.startswith(SCHEME):
                starts[os.path.dirname(path_of(one))] = None
                starts[path_of(one)] = None
        return _above(starts)


def project_files_at(directory: str) -> tuple[str, ...]:
    """The files of projects that count in this directory, the nearest last."""
    return _above({os.fsencode(directory): None})


def _above(starts: Iterable[bytes]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    seen: set[bytes] = set()
    for directory in starts:
        while directory not in seen:
            seen.add(directory)
            file = os.path.join(directory, b"takeback.toml")
            if os.path.lexists(file) and not _is_anybodys(directory):
                found[os.fsdecode(file)] = None
            directory = os.path.dirname(directory)
    return tuple(sorted(found))


def _is_anybodys(directory: bytes) -> bool:
    """In /tmp everybody could write rules for everybody."""
    try:
        return bool(os.stat(directory).st_mode & 0o002)
    except OSError:
        return True
