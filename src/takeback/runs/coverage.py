"""What of a command can be taken back and what cannot, in one sentence that is recorded with its effect."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from takeback.sandbox.ability import Ability

_LISTED = 4
_MIXED = "Changes that other people or programs make there while it runs are recorded as part of it."


def of_sandbox(able: "Ability", network: bool) -> str:
    files = "Files: covered exactly, everywhere"
    if able.not_covered:
        paths = [path for path, _ in able.not_covered]
        listed = ", ".join(paths[:_LISTED])
        more = f" and {len(paths) - _LISTED} more" if len(paths) > _LISTED else ""
        files += f" but {listed}{more}, which cannot be written there"
    return f"{files}. {_outside(network)}"


def of_roots(roots: tuple[str, ...], apart: bool, network: bool = True) -> str:
    """`apart`: the kernel tells who makes each change."""
    listed = ", ".join(roots[:_LISTED])
    more = f" and {len(roots) - _LISTED} more" if len(roots) > _LISTED else ""
    mixed = "" if apart else f" {_MIXED}"
    return f"Files: covered below {listed}{more}, and nowhere else.{mixed} {_outside(network)}"


def _outside(network: bool) -> str:
    if network:
        return "Not covered: what is sent over the network, other machines, and services that already run."
    return "It has no network, and reaches no service of this machine."
