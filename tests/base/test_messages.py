"""Names and messages as people see them."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from pyro_fairvae.base.messages import first_line, in_one_line, one_line, printable


def test_no_control_character_is_left_and_no_other_is_touched() -> None:
    kept = {"\n", "\t"}
    for code in range(sys.maxunicode + 1):
        letter = chr(code)
        if unicodedata.category(letter) in ("Cc", "Cs") and letter not in kept:
            assert printable(letter).isascii(), hex(code)
            assert printable(letter).startswith("\\"), hex(code)
        elif letter.isprintable() or letter in kept:
            assert printable(letter) == letter
    reordering = [chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F)]
    assert all(printable(letter).isascii() for letter in reordering)
    assert printable("a\x1b[31mb\x9b") == "a\\x1b[31mb\\x9b"


def test_a_name_inside_of_a_line_breaks_no_line() -> None:
    assert in_one_line("a\nb\tc\r") == "a\\nb\\tc\\r"
    assert one_line("first\n  second\x07") == "first second\\x07"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("one.\ntwo", "one"),
        ("\n\n  Error(s) in loading:\n\tsize mismatch.\nmore", "Error(s) in loading: size mismatch"),
        ("", "ValueError"),
        ("a\x1b[2J", "a\\x1b[2J"),
    ],
)
def test_of_other_libraries_the_first_line_that_tells_something(message: str, told: str) -> None:
    assert first_line(ValueError(message)) == told
