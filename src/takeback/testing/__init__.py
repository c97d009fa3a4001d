"""For authors of stores and adapters: suites to inherit, and processes that die at a given point.

Nothing of takeback imports this. The suites need pytest.

A law that does not apply to an adapter or a door is declared with a reason. Register this package as a plugin of pytest
(`pytest_plugins = ["takeback.testing"]`), and the end of a session lists each of them once. It travels as a property of
the test, so it arrives from the processes of pytest-xdist too.
"""

from collections.abc import Callable, Mapping
from typing import Any

_HOMES = {
    "takeback.testing.adapter_suite": ("AdapterSuite",),
    "takeback.testing.door_suite": ("DoorScene", "DoorSuite", "KilledDoorSuite", "RefusingDoorSuite"),
    "takeback.testing.blobs_suite": ("BlobsSuite", "DurableBlobsSuite"),
    "takeback.testing.crash": (
        "Boundaries",
        "in_a_process",
        "killed_again_and_again",
        "killed_everywhere",
        "wrap",
    ),
    "takeback.testing.fakes": ("Clock", "FakeProcesses"),
    "takeback.testing.journal_queries_suite": ("DurableJournalSuite", "JournalQueriesSuite"),
    "takeback.testing.leases_suite": ("DurableLeasesSuite", "LeasesSuite"),
}


def __getattr__(name: str) -> Any:
    import importlib

    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'takeback.testing' has no attribute {name!r}")


Record = Callable[[str, object], None]  # pytest's `record_property`
Law = Callable[[Any, Any], None]  # a test of a scene
Exempt = Callable[[Any], tuple[str, Mapping[str, str]]]  # of a scene: its name, and why laws do not apply
PROPERTY = "law-not-asked"  # of a test report


def applies(law: str, to: str, exempt: Mapping[str, str], record: Record) -> bool:
    """Whether the law is asked of it; if not, that is recorded with its reason."""
    reason = exempt.get(law)
    if reason is None:
        return True
    assert reason.strip(), f"{to} does not say why this law does not apply to it: {law}"
    record(PROPERTY, f"{law}: {to}: {reason}")
    return False


def law(name: str, of: Exempt) -> Callable[[Law], Callable[..., None]]:
    """Of a test that is asked of a scene unless it is exempt."""

    def decorated(test: Law) -> Callable[..., None]:
        def asked(self: Any, scene: Any, record_property: Record) -> None:
            to, exempt = of(scene)
            if applies(name, to, exempt, record_property):
                test(self, scene)

        return asked

    return decorated


def refuse_unknown(exempt: Mapping[str, str], laws: tuple[str, ...], to: str) -> None:
    """An exemption from a law that nothing asks is a mistake."""
    unknown = sorted(exempt.keys() - set(laws))
    assert not unknown, f"{to} wants an exemption from what is no law: {', '.join(unknown)}"


def listed(reports: Mapping[str, list[Any]]) -> list[str]:
    """Each once, of the reports of a whole session."""
    return sorted(
        {
            str(value)
            for each in reports.values()
            for report in each
            for name, value in getattr(report, "user_properties", ())
            if name == PROPERTY
        }
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    found = listed(terminalreporter.stats)
    if found:
        terminalreporter.section("laws that do not apply")
        for one in found:
            terminalreporter.line(one)
