"""Hostile words and numbers, as people, other programs and attackers write them."""

from __future__ import annotations

from hypothesis import strategies as st

LONG = "x" * 100_000
PATH_TOO_LONG = "y" * 300
WORDS = (
    "", " ", "0", "-0", "01", "1", "1.0", "1e999", "-1e999", "nan", "NaN", "inf", "-inf", "None", "null",
    "True",
    "=cmd|'/C calc'!A0", "+1+1", "@SUM(1)", "\x1b[31mred", "\x00", "a\x00b", "\x07", "a\nb", "a\r\nb",
    "\u2028",
    "\u202eright to left", "\ufeff", "\ud800", "\u0660\u0661", "λ", "Ŷ", "😀", "é", "e\u0301", "ß", "'", '"',
    '""', "a,b", "a\tb", "a;b", "../../up", "/", "C:\\x", "%s%s%n", "{0}", "${x}",
    "<script>alert(1)</script>",
    "a" * 255, LONG, "2024-02-30", "2024-01-01", "12:00", "1_000", "0x10", "1e5", "١", "∞", "−1", "1,5",
    "99999999999999999999", "-9223372036854775809", "1e-400", "label", "group", "hired", "sex", "x0", "∅",
    "not stated",
)  # fmt: skip
NUMBERS = (
    "0", "-1", "1", "2", "0.5", "1.5", "-0.0", "nan", "inf", "-inf", "1e308", "1e309", "-1e308", "1e-320", "",
    " 1 ", "1_0", "٣", "0x1", "1e", "one", "9223372036854775807", "9223372036854775808",
    "18446744073709551616",
    "-9223372036854775809", "1" + "0" * 30, "1" + "0" * 400, "9" * 5000, "1,2", "1;2", "1,", ",", "0,0",
    "0,1,0",
    "--", "-", "1.0.0", "true", "None", "\x00", "½", "²",
)  # fmt: skip
# Values of JSON and YAML that stand where another is expected.
VALUES: tuple[object, ...] = (
    None, True, False, 0, 1, -1, 0.5, -0.5, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 1e308, -1e308,
    1e-320, "",
    "0", "x", "\x00", "\x1b[2J", "\ud800", "=1+1", [], {}, [[]], [None], [0], ["x"], {"": 0}, {"x": None},
    [1, "x"],
    [0.1, 0.9], [[0.1], [0.9]], ["a", "a"], "é" * 300, {"mean": 0.1}, list(range(300)),
)  # fmt: skip

words = st.one_of(st.sampled_from(WORDS), st.text(max_size=12))
numbers = st.one_of(
    st.sampled_from(NUMBERS), st.integers(-3, 12).map(str), st.floats(-2, 2).map("{:.3g}".format)
)
values = st.one_of(
    st.sampled_from(VALUES),
    words,
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True, allow_infinity=True),
)
json_values = st.recursive(
    values,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(words, inner, max_size=4)),
    max_leaves=8,
)
