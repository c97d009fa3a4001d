"""Killed at every boundary of an anchor: what is there verifies, and the next anchor goes on from it."""

import os
from pathlib import Path

import pytest

import takeback
from takeback.api import opened_of, proof
from takeback.audit import keys
from takeback.testing.crash import Boundaries, in_a_process, open_wrapped, wrap_system_calls
from tests.proof.ledger import recorded


@pytest.mark.sampled(3)
@pytest.mark.parametrize("nth", range(1, 16))
def test_an_anchor_is_made_or_not(store: Path, tmp_path: Path, nth: int) -> None:
    key, place, other = (os.fspath(tmp_path / name) for name in ("keys/audit.key", "anchors", "other"))
    keys.make(key, os.fspath(store))
    takeback.open(other).close()
    with takeback.open(store) as tb:
        recorded(tb, 3, 0)
        proof.anchor(opened_of(tb), f"file:{place}", f"store:{other}", key=key)
        recorded(tb, 3, 1)

    def anchored(boundaries: Boundaries) -> None:
        with open_wrapped(os.fspath(store), boundaries) as tb:
            wrap_system_calls(boundaries)
            proof.anchor(opened_of(tb), f"file:{place}", f"store:{other}", key=key)

    end = in_a_process(anchored, Boundaries(nth))
    assert end.killed, "it has fewer boundaries than that"

    with takeback.open(store) as tb:
        look = proof.check_anchors(opened_of(tb), f"file:{place}", f"store:{other}", keys=[f"{key}.pub"])
        assert look.judgement.findings == ()
        recorded(tb, 1, 2)
        made = proof.anchor(opened_of(tb), f"file:{place}", f"store:{other}", key=key)
        assert made.failed == ()
        look = proof.check_anchors(opened_of(tb), f"file:{place}", f"store:{other}", keys=[f"{key}.pub"])
        assert look.judgement.findings == ()
        assert look.newest == made.anchor
        assert look.unanchored == 0
