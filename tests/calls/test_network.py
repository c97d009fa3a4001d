"""Messages lost and late on a network of its own, before and after the bank has acted."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from examples.office import ROOT, BankOffice
from tests.calls.own import SHORT
from tests.servers.process import wait_until

pytestmark = [pytest.mark.root, pytest.mark.needs("ip", "iptables", "nsenter")]


class Network:
    """A network namespace: whoever is in it reaches nobody else, and its packets can be dropped."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", sys.executable, "-c", "print(flush=True); input()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._holder.stdout
        self._holder.stdout.readline()
        self.enter = ("nsenter", f"--net=/proc/{self._holder.pid}/ns/net")
        self.do("ip", "link", "set", "lo", "up")

    def do(self, *words: str) -> None:
        subprocess.run([*self.enter, *words], check=True)

    def drop(self, side: str, port: int) -> None:
        """`side`: what goes to the bank ("dport") or what comes from it ("sport")."""
        self.do("iptables", "-A", "INPUT", "-p", "tcp", f"--{side}", str(port), "-j", "DROP")

    def heal(self) -> None:
        self.do("iptables", "-F", "INPUT")

    def close(self) -> None:
        self._holder.communicate("")
