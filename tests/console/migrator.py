"""An agent's program that makes a risky migration: asked for, approved, checked, and taken back if the check fails.

python -m tests.console.migrator STORE DATABASE
"""

import sqlite3
import sys
import time

import takeback


def main(store: str, path: str) -> None:
    def migrate(url: str) -> None:
        with run.sql(url, hold=True) as db:
            held = db.execute("ALTER TABLE customers DROP COLUMN email").effect
            assert held
            while any(one.id == held.id for one in tb.pending()):
                time.sleep(0.05)  # noqa: TID251  # a person decides
            run.apply(held)

    def works(_: str) -> bool:
        with sqlite3.connect(path) as shop:
            return shop.execute("SELECT count(email) FROM customers").fetchone() == (2,)

    with takeback.open(store) as tb, tb.run("drop the old column", agent="migrator") as run:
        (target,) = run.canary([f"sqlite:///{path}"], migrate, works).targets
        sys.stdout.write(f"{target.outcome}: {target.why}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
