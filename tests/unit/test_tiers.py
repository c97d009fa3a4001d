"""Which effects may go, by tier; and the limits of a store by the size of its disk."""

import pytest

from takeback.errors import Misuse
from takeback.model.change import Change
from takeback.model.effect import Effect, State
from takeback.model.settings import DAY, GB, HOUR, PRESETS, Limits, Settings, limits, settings_from
from takeback.retention.candidates import SECOND, Weighed, decide

NOW = 1_000_000 * DAY * SECOND // 1_000


def weighed(age: int, accepted_by: str = "", **more: object) -> Weighed:
    """Made, and its run ended, so many seconds ago."""
    at = NOW - age * SECOND
    lasting, redo_gone = bool(more.pop("lasting", False)), bool(more.pop("redo_gone", False))
    effect = Effect("e", "r", "", 1, State.DONE, Change("file", "write", "file:///a", "", {}), at=at)
    effect = effect._replace(accepted_by=accepted_by, **more)  # pyright: ignore[reportArgumentType]
    return Weighed(effect, at, redo_gone, lasting)


OLD, YOUNG = 30 * DAY, 30 * DAY - 1


@pytest.mark.parametrize(
    ("one", "by_time", "pressed"),
    [
        (weighed(OLD, "run"), True, True),
        (weighed(YOUNG, "run"), False, True),
        (weighed(OLD, "person"), True, True),
        (weighed(HOUR, "run"), False, True),
        (weighed(HOUR - 1, "run"), False, False),
        (weighed(10 * OLD), False, False),
        (weighed(10 * OLD, "run", pinned=True), False, False),
        (weighed(10 * OLD, "run", forgotten=True), False, False),
        (weighed(10 * OLD, "run", state=State.ABORTED), False, False),
        (weighed(10 * OLD, "run", state=State.STUCK), False, False),
        (weighed(0, state=State.UNDONE, redo_gone=True), True, True),
        (weighed(0, state=State.UNDONE, redo_gone=True, pinned=True), False, False),
        (weighed(YOUNG, lasting=True), False, False),
        (weighed(OLD, lasting=True), False, False),
        (weighed(OLD + HOUR, lasting=True), False, True),
        (weighed(2 * OLD, lasting=True), True, True),
        (weighed(2 * OLD, lasting=True, pinned=True), False, False),
    ],
)
def test_what_goes_by_time_and_what_goes_when_there_is_no_room(
    one: Weighed, by_time: bool, pressed: bool
) -> None:
    for wanted, under_pressure in ((by_time, False), (pressed, True)):
        (decision,) = decide([one], Settings(), NOW, under_pressure)
        assert decision.forget is wanted, decision.why
        assert decision.why


@pytest.mark.parametrize(
    ("settings", "disk", "expected"),
    [
        (Settings(), 20 * GB, Limits(5 * GB, 1 * GB)),
        (Settings(), 40 * GB, Limits(5 * GB, 2 * GB)),
        (Settings(), 50 * GB, Limits(5 * GB, 2 * GB)),
        (Settings(), 1000 * GB, Limits(100 * GB, 2 * GB)),
        (Settings(store_bytes=7, free_bytes=8), 1000 * GB, Limits(7, 8)),
    ],
)
def test_the_limits_follow_the_size_of_the_disk(settings: Settings, disk: int, expected: Limits) -> None:
    assert limits(settings, disk) == expected


def test_an_old_name_of_a_setting_says_the_new_one() -> None:
    with pytest.raises(Misuse, match="renamed") as told:
        settings_from({"kept_seconds": 5}, "settings.json")
    assert "accepted_seconds" in told.value.hint


def test_a_preset_where_only_numbers_can_be_is_refused_with_its_numbers() -> None:
    """The table of settings of a store in PostgreSQL."""
    with pytest.raises(Misuse, match="retention names a preset") as refused:
        settings_from({"retention": 1}, "postgresql://h/d (table settings)")
    for name, value in PRESETS["small"].items():
        assert f"{name} {value}" in refused.value.hint
