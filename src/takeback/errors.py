"""Every error, in seven families by what we now know about the world; the number is the exit code."""

from collections.abc import Mapping

_UNTOUCHED = ("Nothing was changed. ", "Nothing was done. ", "Nothing was touched. ")


class TakebackError(Exception):
    """What happened, in one sentence; `hint` says what to do about it."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "", effect: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.effect = effect

    @property
    def way_on(self) -> str:
        """The hint for a caller who says itself what has happened: without the words that nothing has."""
        hint = self.hint
        for words in _UNTOUCHED:
            hint = hint.removeprefix(words)
        return hint


class Failed(TakebackError):
    """We acted, it did not hold, and the world is known."""

    exit_code = 1


class ApplyFailed(Failed):
    """The change could not be made and was taken back."""


class UndoFailed(Failed):
    """An undo could not be carried out; what it touched is back where it was."""


class DidNotHappen(Failed):
    """Nothing happened, for certain: raise it in an action that was declined."""


class StatementFailed(Failed):
    """The database refused a statement; its transaction was rolled back."""


class VerifyFailed(Failed):
    """The change was made, did not pass its check, and was undone. A probe raises it if it finds something other than
    requested; `receipt` is what it found, so that it can be compensated."""

    def __init__(
        self, message: str, *, hint: str = "", effect: str | None = None, receipt: object = None
    ) -> None:
        super().__init__(message, hint=hint, effect=effect)
        self.receipt = receipt


class Misuse(TakebackError):
    """The caller's code or command line is wrong."""

    exit_code = 2


class Renamed(Misuse):
    """The word was replaced by another, which the hint names; nothing was done."""


class Refused(TakebackError):
    """We did not act; the world is untouched."""

    exit_code = 3


class Denied(Refused):
    """A person or a policy said no."""


class ApprovalExpired(Refused):
    """No one answered in time, and silence means no."""


class NoRemedy(Refused):
    """No way back could be prepared, so the change was not made. `allowable`: `allow_inexact` would make it."""

    def __init__(
        self, message: str, *, hint: str = "", effect: str | None = None, allowable: bool = False
    ) -> None:
        super().__init__(message, hint=hint, effect=effect)
        self.allowable = allowable


class Drifted(Refused):
    """Someone changed the target between looking and acting."""


class Conflict(Refused):
    """Something stands in the way of an undo: it was changed since, or cannot be reached or read."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        effect: str | None = None,
        resources: tuple[str, ...] = (),
        obstacles: Mapping[str, str] | None = None,
    ) -> None:
        """`obstacles`: by resource, what stands in the way (`model.plan.Obstacle`)."""
        super().__init__(message, hint=hint, effect=effect)
        self.resources = resources
        self.obstacles = obstacles or {}


class KeyReused(Refused):
    """An idempotency key was given again with a different change."""


class Spent(Refused):
    """A call that was made before the run went back; making it once more has to be said."""


class Blocked(Refused):
    """Later effects depend on this one."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        effect: str | None = None,
        blockers: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, hint=hint, effect=effect)
        self.blockers = blockers


class Forgotten(Refused):
    """The power to undo this effect was given up."""


class ValidationFailed(Refused):
    """A check failed for the new content."""


class PreconditionFailed(Refused):
    """A precondition of the change is false."""


class Stuck(TakebackError):
    """We acted, and the world is where we cannot vouch for it: a person is needed."""

    exit_code = 4


class Diverged(Stuck):
    """A workflow's function no longer asks for what is recorded of its run."""


class ByHand(Stuck):
    """The way back is a person's to go, or ours failed for good."""


class Unavailable(TakebackError):
    """Not now; trying again is safe."""

    exit_code = 5


class AwaitingApproval(Unavailable):
    """Nothing was done yet: a person has to say yes first, before `until` (microseconds since 1970; 0: at any time)."""

    def __init__(self, message: str, *, hint: str = "", effect: str | None = None, until: int = 0) -> None:
        super().__init__(message, hint=hint, effect=effect)
        self.until = until


class LeaseHeld(Unavailable):
    """Another process is working on this run."""


class LeaseLost(Unavailable):
    """Someone else took the run over while we were away."""


class StoreBusy(Unavailable):
    """Another process is in the middle of a change to the same thing, or of a long write to the store."""


class Superseded(StoreBusy):
    """Something was recorded after this was decided, so it has to be decided again; nothing was changed."""


class RowsHeld(StoreBusy):
    """Someone has rows of a database, and did not let go of them in time; nothing of the change was made."""


class ActionMissing(Unavailable):
    """A function that the journal names is not here, or is another one by now."""


class ResourceUnreachable(Unavailable):
    """The target, or the place for the way back, cannot be reached (disk full, read-only, no rights)."""


class StoreFull(ResourceUnreachable):
    """The disk under the store is full; what is in the store is sound."""


class ServerUnreachable(ResourceUnreachable):
    """The server of a database does not answer, or refuses the connection."""


class InDoubt(TakebackError):
    """The answer was lost, and it may have happened: look, and do not repeat it. `effect` is the one in doubt."""

    exit_code = 7


class Corrupt(TakebackError):
    """Our own data is wrong."""

    exit_code = 6


class BlobMissing(Corrupt):
    """A blob that a remedy lists is not in the store."""


class BlobDamaged(Corrupt):
    """A blob does not have the bytes its name promises."""


class RecordInvalid(Corrupt):
    """A journal record is damaged or does not fit the ones before it."""


class FormatTooNew(Corrupt):
    """The store was written by a newer takeback."""
