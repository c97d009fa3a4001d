"""The small bank (`examples.bank`) as a process of ours, and its books as someone sees them who is not an agent."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib import request

from examples import payments

ROOT = Path(__file__).parents[1]


class BankOffice:
    """The bank, as someone who is not an agent sees it."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "examples.bank", "--ledger", str(directory / "ledger.db"), *options],
            stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        assert self._process.stdout
        self.url = self._process.stdout.readline().strip()

    def ledger(self) -> list[dict[str, Any]]:
        return self._ask("/ledger")

    def with_key(self, key: str) -> list[dict[str, Any]]:
        return self._ask(f"/transfers?key={key}")

    def reversals(self, of: int) -> list[dict[str, Any]]:
        return self._ask(f"/reversals?of={of}")

    def _ask(self, path: str) -> Any:
        with request.urlopen(f"{self.url}{path}") as answer:
            return json.load(answer)

    def payments(self) -> list[tuple[str, str, int]]:
        """Those that are in force: neither reversals nor reversed."""
        rows = self.ledger()
        gone = {row["reverses"] for row in rows}
        return [
            (row["source"], row["target"], row["cents"])
            for row in rows
            if row["reverses"] is None and row["id"] not in gone
        ]

    def fund(self, name: str, cents: int) -> None:
        payments.ask("/transfers", {"source": "mint", "target": name, "cents": cents}, "funding")

    def misbehave(self, *how: str, path: str = "/transfers") -> None:
        payments.ask("/misbehave", {"path": path, "how": list(how)})

    def expected(self) -> int:
        """How many transfers are still to come that it will do in its own way."""
        return int(self._ask("/misbehave")["left"])

    def idle(self) -> bool:
        """Nothing is on its way that could still appear in the ledger."""
        return self._ask("/misbehave")["busy"] == 0

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()
