"""Undo for what AI agents do: every change gets a way back before it is made."""

TYPE_CHECKING = (
    False  # not from typing: as little as can be is imported before the command line hears an interrupt
)

if TYPE_CHECKING:
    from typing import Any

    from takeback.adapters.call.action import IRREVERSIBLE, MANUAL, Action, action
    from takeback.api import Takeback, open, prompts, sessions
    from takeback.errors import (
        ActionMissing,
        ApplyFailed,
        ApprovalExpired,
        AwaitingApproval,
        BlobDamaged,
        BlobMissing,
        Blocked,
        ByHand,
        Conflict,
        Corrupt,
        Denied,
        DidNotHappen,
        Diverged,
        Drifted,
        Failed,
        Forgotten,
        FormatTooNew,
        InDoubt,
        KeyReused,
        LeaseHeld,
        LeaseLost,
        Misuse,
        NoRemedy,
        PreconditionFailed,
        RecordInvalid,
        Refused,
        Renamed,
        ResourceUnreachable,
        RowsHeld,
        ServerUnreachable,
        Spent,
        StatementFailed,
        Stopped,
        StoreBusy,
        StoreFull,
        Stuck,
        Superseded,
        TakebackError,
        Unavailable,
        UndoFailed,
        ValidationFailed,
        VerifyFailed,
    )
    from takeback.model.effect import Effect, State
    from takeback.model.plan import UndoResult
    from takeback.model.run import Checkpoint, Position, RunInfo
    from takeback.model.settings import Settings
    from takeback.model.stop import Stop
    from takeback.policy import checks
    from takeback.runs.run import Run
    from takeback.runs.workflows.function import Workflow, workflow

__version__ = "0.1.0"

# Where each public name lives: loaded when it is first asked for, so that importing takeback costs next to nothing.
_HOMES = {
    "takeback.adapters.call.action": ("Action", "IRREVERSIBLE", "MANUAL", "action"),
    "takeback.api": ("Takeback", "open", "prompts", "sessions"),
    "takeback.model.effect": ("Effect", "State"),
    "takeback.model.plan": ("UndoResult",),
    "takeback.model.run": ("Checkpoint", "Position", "RunInfo"),
    "takeback.model.settings": ("Settings",),
    "takeback.model.stop": ("Stop",),
    "takeback.runs.run": ("Run",),
    "takeback.runs.workflows.function": ("Workflow", "workflow"),
}

__all__ = [
    "IRREVERSIBLE",
    "MANUAL",
    "Action",
    "ActionMissing",
    "ApplyFailed",
    "ApprovalExpired",
    "AwaitingApproval",
    "BlobDamaged",
    "BlobMissing",
    "Blocked",
    "ByHand",
    "Checkpoint",
    "Conflict",
    "Corrupt",
    "Denied",
    "DidNotHappen",
    "Diverged",
    "Drifted",
    "Effect",
    "Failed",
    "Forgotten",
    "FormatTooNew",
    "InDoubt",
    "KeyReused",
    "LeaseHeld",
    "LeaseLost",
    "Misuse",
    "NoRemedy",
    "Position",
    "PreconditionFailed",
    "RecordInvalid",
    "Refused",
    "Renamed",
    "ResourceUnreachable",
    "RowsHeld",
    "Run",
    "RunInfo",
    "ServerUnreachable",
    "Settings",
    "Spent",
    "State",
    "StatementFailed",
    "Stop",
    "Stopped",
    "StoreBusy",
    "StoreFull",
    "Stuck",
    "Superseded",
    "Takeback",
    "TakebackError",
    "Unavailable",
    "UndoFailed",
    "UndoResult",
    "ValidationFailed",
    "VerifyFailed",
    "Workflow",
    "action",
    "checks",
    "open",
    "prompts",
    "sessions",
    "workflow",
]


def __getattr__(name: str) -> "Any":
    import importlib

    if name == "checks":
        return importlib.import_module("takeback.policy.checks")
    if name not in __all__:
        raise AttributeError(f"module 'takeback' has no attribute {name!r}")
    home = next((home for home, names in _HOMES.items() if name in names), "takeback.errors")
    return getattr(importlib.import_module(home), name)
