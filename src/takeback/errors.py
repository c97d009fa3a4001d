"""Every error, in seven families by what we now know about the world; the number is the exit code."""

from collections.abc import Mapping

_UNTOUCHED = ("Nothing was changed. ", "Nothing was done. ", "Nothing was touched. ")


class TakebackError(Exception):
    """The base of all errors: what happened, in one sentence; `hint` says what to do."""

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
    """takeback acted and failed; the state of the world is known."""

    exit_code = 1


class ApplyFailed(Failed):
    """The change could not be made and was taken back."""


class UndoFailed(Failed):
    """An undo failed; its targets are back in the state before it."""


class DidNotHappen(Failed):
    """Nothing happened, for certain: an action raises it, for example if the service declined."""


class StatementFailed(Failed):
    """The database refused a statement; its transaction was rolled back."""


class VerifyFailed(Failed):
    """The change was made, failed its check, and was undone.

    A `verify` function raises it if it finds something other than requested; `receipt` is what it found, for the undo.
    """

    def __init__(
        self, message: str, *, hint: str = "", effect: str | None = None, receipt: object = None
    ) -> None:
        super().__init__(message, hint=hint, effect=effect)
        self.receipt = receipt


class Misuse(TakebackError):
    """The caller's code or command line is wrong."""

    exit_code = 2


class Renamed(Misuse):
    """This name was replaced; the hint has the new one. Nothing was done."""


class Refused(TakebackError):
    """takeback did not act; the world is untouched."""

    exit_code = 3


class Denied(Refused):
    """A person or a policy said no."""


class ApprovalExpired(Refused):
    """No one answered in time, and silence means no."""


class Stopped(Refused):
    """The agent, the run or everything was stopped: nothing further is done until a person lifts that."""


class NoRemedy(Refused):
    """The change could not be undone, so it was not made. `allowable`: `allow_inexact` would make it."""

    def __init__(
        self, message: str, *, hint: str = "", effect: str | None = None, allowable: bool = False
    ) -> None:
        super().__init__(message, hint=hint, effect=effect)
        self.allowable = allowable


class Drifted(Refused):
    """Someone changed the target between looking and acting."""


class Conflict(Refused):
    """An undo is blocked: a target was changed since, or cannot be reached or read."""

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
    """The run made this call before it went back to a checkpoint; `run.fork` allows it again."""


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
    """The undo data of this effect was deleted."""


class ValidationFailed(Refused):
    """A check failed for the new content."""


class PreconditionFailed(Refused):
    """A precondition of the change is false."""


class Stuck(TakebackError):
    """takeback acted, and the state of the world is uncertain: a person is needed."""

    exit_code = 4


class Diverged(Stuck):
    """The function of a workflow no longer makes the steps that its run has recorded."""


class ByHand(Stuck):
    """Only a person can undo it, or its automatic undo failed for good."""


class Unavailable(TakebackError):
    """Not possible now; trying again is safe."""

    exit_code = 5


class AwaitingApproval(Unavailable):
    """People must approve first, before `until` (microseconds since 1970; 0: at any time). Nothing was done yet."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        effect: str | None = None,
        until: int = 0,
        asked: tuple[str, ...] = (),
        people: int = 1,
        challenge: str = "",
    ) -> None:
        """`asked`: the names of those who may approve, empty for anyone; so many `people` of them must; `challenge`:
        the words that they have to type."""
        super().__init__(message, hint=hint, effect=effect)
        self.until = until
        self.asked = asked
        self.people = people
        self.challenge = challenge


class LeaseHeld(Unavailable):
    """Another process is working on this run."""


class LeaseLost(Unavailable):
    """Another process took the run over in between."""


class StoreBusy(Unavailable):
    """Another process is changing the same target, or writing to the store for long."""


class Superseded(StoreBusy):
    """A newer record made this decision outdated; decide again. Nothing was changed."""


class RowsHeld(StoreBusy):
    """Another session locked rows of a database for too long; nothing was changed."""


class ActionMissing(Unavailable):
    """A function that the journal names cannot be imported, or has changed."""


class ResourceUnreachable(Unavailable):
    """The target, or the place for undo data, cannot be reached (disk full, read-only, no rights)."""


class StoreFull(ResourceUnreachable):
    """The disk under the store is full; the store itself is sound."""


class ServerUnreachable(ResourceUnreachable):
    """The server of a database does not answer, or refuses the connection."""


class InDoubt(TakebackError):
    """The answer was lost, so the change may have happened: look, do not repeat it. `effect`: the one in doubt."""

    exit_code = 7
    others: tuple[str, ...] = ()  # effects that are in doubt at the same time


class Corrupt(TakebackError):
    """Data of takeback itself is damaged."""

    exit_code = 6


class BlobMissing(Corrupt):
    """A blob that a remedy lists is not in the store."""


class BlobDamaged(Corrupt):
    """A blob has other bytes than its name says."""


class RecordInvalid(Corrupt):
    """A journal record is damaged or does not fit the ones before it."""


class FormatTooNew(Corrupt):
    """The store was written by a newer takeback."""
