"""A post office in a file: mails that cannot be unsent, and parcels that a person has to fetch back."""

import os
from pathlib import Path
from typing import Any

import takeback


def sent() -> list[str]:
    out = Path(os.environ["POST"])
    return out.read_text().splitlines() if out.exists() else []


@takeback.action(undo=takeback.IRREVERSIBLE("the mail is read"))
def send_mail(to: str, text: str = "hello", amount: float = 0, request: str = "", *, key: str) -> Any:
    with open(os.environ["POST"], "a") as out:
        out.write(f"mail {to} {text}\n")
    return {"to": to, "number": len(sent())}


@takeback.action(undo=takeback.MANUAL("drive there and fetch the parcel"))
def send_parcel(to: str) -> Any:
    with open(os.environ["POST"], "a") as out:
        out.write(f"parcel {to}\n")
    return {"to": to}
