"""For authors of stores and adapters: suites to inherit, and processes that die where they are told to.

Nothing of takeback imports this. The suites need pytest.
"""

from typing import Any

_HOMES = {
    "takeback.testing.adapter_suite": ("AdapterSuite",),
    "takeback.testing.door_suite": ("DoorScene", "DoorSuite", "KilledDoorSuite", "RefusingDoorSuite"),
    "takeback.testing.blobs_suite": ("BlobsSuite",),
    "takeback.testing.blobs_durable_suite": ("DurableBlobsSuite",),
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
