"""Encoding and cutting: what goes in comes out, and what was changed in between is found."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takeback.storage.blobs.codec import BlobForm, Undecodable, cut, decode, encode, name, names_in, seal

TEXT = b"".join(b"option_%d = %d\n" % (n, n * 7919 % 1000) for n in range(600))


def noise(length: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(length)


@given(st.binary(max_size=3000), st.one_of(st.none(), st.binary(max_size=3000)))
def test_whatever_is_encoded_is_decoded_again(content: bytes, base: bytes | None) -> None:
    form, data = encode(content, base)
    assert decode(form, data, len(content), base) == content
    assert len(data) <= len(content)


@given(st.lists(st.binary(max_size=50)), st.integers(1, 40))
def test_cutting_changes_no_byte_and_makes_all_pieces_but_the_last_equally_long(
    pieces: list[bytes], length: int
) -> None:
    whole = b"".join(pieces)
    for content in (pieces, iter(pieces), whole, bytearray(whole), memoryview(whole)):
        made = list(cut(content, length))
        assert b"".join(made) == whole
        assert all(len(piece) == length for piece in made[:-1])
        assert all(made)


def test_a_changed_line_costs_a_few_dozen_bytes() -> None:
    form, data = encode(TEXT.replace(b"option_300 =", b"option_300 = 12 #"), TEXT)
    assert form is BlobForm.DELTA and len(data) < 60


def test_a_shift_inside_four_megabytes_of_noise_costs_what_was_inserted() -> None:
    base = noise(4 << 20)
    content = (base[:1234] + noise(4096, 1) + base[1234:])[: 4 << 20]
    form, data = encode(content, base)
    assert form is BlobForm.DELTA and len(data) < 6000
    assert decode(form, data, len(content), base) == content


def test_noise_is_kept_as_it_is() -> None:
    for length in (10, 5000, 4 << 20):
        assert encode(noise(length)) == (BlobForm.RAW, noise(length))


def test_a_difference_to_something_unrelated_is_not_used() -> None:
    assert encode(noise(5000, 1), noise(5000, 2)).form is BlobForm.RAW
    assert encode(TEXT, noise(5000)).form is BlobForm.ZSTD


def test_text_after_an_incompressible_beginning_is_compressed_all_the_same() -> None:
    content = noise(300_000) + bytes(700_000)
    form, data = encode(content)
    assert form is BlobForm.ZSTD and len(data) < 310_000


@given(st.data())
def test_a_flipped_bit_is_undecodable_or_shows_in_the_hash(data: st.DataObject) -> None:
    base = data.draw(st.sampled_from([None, TEXT]))
    form, encoded = encode(TEXT + b"more", base)
    at = data.draw(st.integers(0, len(encoded) * 8 - 1))
    changed = bytearray(encoded)
    changed[at // 8] ^= 1 << at % 8
    try:
        found = decode(form, bytes(changed), len(TEXT) + 4, base)
    except Undecodable:
        return
    # Some bits of a frame mean nothing; then the content is right, and otherwise its name is wrong.
    assert found == TEXT + b"more" or name(found) != name(TEXT + b"more")


def test_a_frame_that_announces_more_than_it_should_is_not_unpacked() -> None:
    form, data = encode(bytes(50 << 20))
    assert len(data) < 10_000
    with pytest.raises(Undecodable):
        decode(form, data, 100)


def test_cut_off_or_lengthened_frames_are_undecodable() -> None:
    form, data = encode(TEXT)
    for wrong in (data[:-1], data + b"x", data[:5], b""):
        with pytest.raises(Undecodable):
            decode(form, wrong, len(TEXT))


def test_a_difference_without_its_base_is_undecodable() -> None:
    form, data = encode(TEXT + b"more", TEXT)
    with pytest.raises(Undecodable):
        decode(form, data, len(TEXT) + 4)


@given(st.lists(st.binary(min_size=32, max_size=32)), st.data())
def test_a_sealed_list_shows_every_change(names: list[bytes], data: st.DataObject) -> None:
    owner = name(b"owner")
    sealed = seal(names, owner)
    assert names_in(sealed, owner) == names
    at = data.draw(st.integers(0, len(sealed) - 1))
    for wrong in (sealed[:at] + bytes([sealed[at] ^ 4]) + sealed[at + 1 :], sealed[:at], sealed + b"x"):
        with pytest.raises(Undecodable):
            names_in(wrong, owner)
    with pytest.raises(Undecodable):
        names_in(sealed, name(b"someone else"))
