"""The settings with their defaults; sizes in words."""

from typing import Any, NamedTuple

from takeback.errors import Misuse, Renamed

HOUR = 3600
DAY = 24 * HOUR
MB = 1024 * 1024
GB = 1024 * MB
MOST_SECONDS = 100 * 366 * DAY  # sums of times stay numbers that a database can hold
_MOST = 1 << 53


PRESETS: dict[str, dict[str, int]] = {
    "small": {"accepted_seconds": HOUR, "store_bytes": 500 * MB, "versions_per_file": 50},
}
_RENAMED = {"kept_seconds": "accepted_seconds"}


class Settings(NamedTuple):
    accepted_seconds: int = 30 * DAY  # an accepted effect can be undone for this long, then it is forgotten
    audit_days: int = 7  # records are shown at least this long; 183 for six months
    dropped_seconds: int = DAY  # what was dropped can be applied for this long; 0: a drop is final
    dropped_bytes: int = GB  # of what was dropped in a project; the oldest goes first
    dropped_most: int = 20  # drops of a project; the oldest goes first
    versions_per_file: int = 0  # accepted ones; 0: no cap
    store_bytes: int = 0  # 0: a tenth of the disk, and 5 GB at least
    free_bytes: int = 0  # of the disk, which the store leaves free; 0: 2 GB, or a twentieth of a smaller disk
    max_capture_bytes: int = 0  # a change that needs more than this is refused; 0: no cap
    max_rows: int = 1_000_000  # a statement that changes more rows must say so first; 0: no cap
    lock_seconds: int = 10  # for rows that are held for a decision, and of an undo for anybody's; 0: no limit
    watch_entries: int = 250_000  # a tree of more is watched only when forced
    watch_bytes: int = 10 * 1024 * MB  # one that needs more to be read first, too
    reserve_bytes: int = 8 * MB  # free space that must remain after a capture
    checkpoint_every: int = 10
    checkpoints_kept: int = 20
    grace_seconds: int = 600  # a blob younger than this is never swept
    lease_seconds: int = 60
    rehearse_days: int = 30  # a kind of remedy that was not proven for this long is due: `rehearse --due`
    approval_seconds: int = DAY  # calls not approved in this time are not made: silence means no; 0: no limit


# What the trusted file of a project may set: how to work there, never what becomes of a store it shares with others.
OF_A_PROJECT = (
    "max_capture_bytes", "max_rows", "lock_seconds", "watch_entries", "watch_bytes", "checkpoint_every",
    "checkpoints_kept", "rehearse_days", "approval_seconds",
)  # fmt: skip


class Limits(NamedTuple):
    """Of a store on a disk of a certain size, in bytes."""

    store: int  # what it may take, without what is pinned
    free: int  # what it leaves free


def limits(settings: Settings, disk: int) -> Limits:
    return Limits(
        settings.store_bytes or max(5 * GB, disk // 10), settings.free_bytes or min(2 * GB, disk // 20)
    )


def project_settings(data: Any, where: str) -> dict[str, int]:
    """As `given_settings`, for the file of a project."""
    found = given_settings(data, where)
    for name in data:
        if name not in OF_A_PROJECT:
            raise Misuse(
                f"{where} sets {name!r}, which is nothing that a project decides.",
                hint=f"A project sets: {', '.join(OF_A_PROJECT)}.",
            )
    return found


def settings_from(data: Any, where: str) -> Settings:
    return Settings(**given_settings(data, where))


def given_settings(data: Any, where: str) -> dict[str, int]:
    """Only those that are given, a preset as its numbers. Strict: an unknown name or a wrong value is a mistake worth
    hearing of."""
    if not isinstance(data, dict):
        raise Misuse(f"{where} is not a JSON object.", hint='Write for example {"accepted_seconds": 86400}.')
    given: dict[str, Any] = {str(name): value for name, value in data.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    preset = given.pop("retention", None)
    if type(preset) is int:  # the table of a store in PostgreSQL holds nothing else
        numbers = "; ".join(
            f"{one}: " + ", ".join(f"{name} {value}" for name, value in values.items())
            for one, values in PRESETS.items()
        )
        raise Misuse(
            f"{where}: retention names a preset, and this is the number {preset}.",
            hint=f"Set the numbers of the preset instead: {numbers}.",
        )
    if preset is not None and preset not in PRESETS:
        raise Misuse(
            f"{where}: there is no retention {preset!r}.", hint=f"It is one of: {', '.join(PRESETS)}."
        )
    unknown = given.keys() - set(Settings._fields)
    for old in sorted(unknown & _RENAMED.keys()):
        raise Renamed(
            f"{where} sets {old!r}, which was renamed.", hint=f"It is called {_RENAMED[old]!r} now."
        )
    if unknown:
        raise Misuse(
            f"{where} sets {sorted(unknown)[0]!r}, which does not exist.",
            hint=f"It knows: {', '.join(('retention', *Settings._fields))}.",
        )
    for name, value in given.items():
        if type(value) is not int or value < 0:
            raise Misuse(
                f"{where}: {name} must be a whole number, not {value!r}.", hint="Seconds, days or bytes."
            )
        most = MOST_SECONDS if name.endswith(("_seconds", "_days")) else _MOST
        if value > most:
            raise Misuse(f"{where}: {name} is more than {most:,}.", hint="Give a smaller number.")
    return {**PRESETS.get(preset or "", {}), **given}


def bytes_in_words(count: int) -> str:
    if count < 1024:
        return f"{count} bytes" if count != 1 else "1 byte"
    value = float(count)
    for unit in ("KB", "MB", "GB", "TB"):
        value /= 1024
        if value < 1024 or unit == "TB":
            break
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"


def span_in_words(seconds: int) -> str:
    """In the largest unit that fits, rounded down."""
    units = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
    size, word = next((one for one in units if seconds >= one[0]), units[-1])
    count = seconds // size
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
