"""Frames of all kinds, given to the Python interface: a valid answer, or :class:`InputError`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from pyro_fairvae import FairDecisions, FairSSVAEClassifier, InputError, audit
from tests.support.user_tables import tiny
from tests.torture.cases import Case, drawn
from tests.torture.forked import forked, refuse
from tests.torture.subjects import FIT_OPTIONS, Subjects
from tests.torture.verdict import wrong_with
from tests.torture.words import WORDS, words

PLAIN_WORDS = [
    word for word in WORDS if word.isascii() or word.encode(errors="ignore").decode() == word
]  # for pandas
Column = Callable[[int, np.random.Generator], Any]
COLUMNS: dict[str, Column] = {
    "float": lambda n, draw: draw.normal(size=n),
    "float32": lambda n, draw: draw.normal(size=n).astype(np.float32),
    "float16": lambda n, draw: draw.normal(size=n).astype(np.float16),
    "int": lambda n, draw: draw.integers(0, 5, n),
    "int8": lambda n, draw: draw.integers(0, 5, n).astype(np.int8),
    "uint64": lambda n, draw: draw.integers(0, 2**63, n, dtype=np.uint64) * 2,
    "bool": lambda n, draw: draw.random(n) < 0.5,
    "text": lambda n, draw: draw.choice(["a", "b", "c"], n).astype(object),
    "string": lambda n, draw: pd.array(draw.choice(["a", "b", None], n), dtype="string"),
    "words": lambda n, draw: np.array([PLAIN_WORDS[k] for k in draw.integers(0, len(PLAIN_WORDS), n)],
    dtype=object),
    "codes": lambda n, draw: draw.choice(["01", "1", "1.0"], n).astype(object),
    "category": lambda n, draw: pd.Categorical(draw.choice(["a", "b"], n), ["a", "b", "unused"]),
    "ordered": lambda n, draw: pd.Categorical(draw.choice([1, 2], n), [2, 1], ordered=True),
    "nullable": lambda n, draw: pd.array(draw.choice([1, 2, None], n), dtype="Int64"),
    "nullable bool": lambda n, draw: pd.array(draw.choice([True, False, None], n), dtype="boolean"),
    "datetime": lambda n, draw: pd.Timestamp("2020-01-01") + pd.to_timedelta(draw.integers(0, 9, n),
    unit="D"),
    "seconds": lambda n, draw: draw.integers(0, 9, n).astype("datetime64[s]"),
    "zoned": lambda n, draw: pd.to_datetime(draw.integers(0, 9, n), unit="D", utc=True),
    "period": lambda n, draw: pd.period_range("2020", periods=n, freq="D"),
    "timedelta": lambda n, draw: pd.to_timedelta(draw.integers(0, 9, n), unit="h"),
    "interval": lambda n, draw: pd.interval_range(0, n, periods=n),
    "complex": lambda n, draw: draw.normal(size=n) + 1j,
    "bytes": lambda n, draw: draw.choice([b"a", b"b"], n).astype(object),
    "lists": lambda n, draw: pd.Series([[1]] * n),
    "dicts": lambda n, draw: pd.Series([{"a": 1}] * n),
    "mixed": lambda n, draw: pd.Series([[1, "1", 1.0, None, True][k % 5] for k in range(n)], dtype=object),
    "dates": lambda n, draw: pd.Series([date(2020, 1, 1 + k % 9) for k in range(n)], dtype=object),
    "moments": lambda n, draw: pd.Series([datetime(2020, 1, 1 + k % 9) for k in range(n)], dtype=object),
    "decimals": lambda n, draw: pd.Series([Decimal(k % 4) / 3 for k in range(n)], dtype=object),
    "fractions": lambda n, draw: pd.Series([Fraction(k % 4, 3) for k in range(n)], dtype=object),
    "differences": lambda n, draw: pd.Series([timedelta(k % 3) for k in range(n)], dtype=object),
    "large": lambda n, draw: pd.Series([10**30 + k % 2 for k in range(n)], dtype=object),
    "surrogates": lambda n, draw: pd.Series(["\ud800", "a"] * n, dtype=object)[:n],
    "infinite": lambda n, draw: np.where(draw.random(n) < 0.3, np.inf, draw.normal(size=n)),
    "huge": lambda n, draw: draw.choice([1e308, -1e308, 1e-320], n),
    "gaps": lambda n, draw: np.full(n, np.nan),
    "nothing": lambda n, draw: np.full(n, None, dtype=object),
    "constant": lambda n, draw: np.zeros(n),
    "sparse": lambda n, draw: pd.arrays.SparseArray((draw.random(n) < 0.2).astype(float)),
    "arrow": lambda n, draw: pd.array(draw.choice(["a", "b"], n), dtype="string[pyarrow]"),
}  # fmt: skip
LABELS: dict[str, Column] = {
    **{name: COLUMNS[name] for name in (
        "int", "int8", "bool", "text", "string", "codes", "category", "ordered", "nullable", "nullable bool",
        "datetime", "seconds", "zoned", "timedelta", "bytes", "mixed", "dates", "moments", "gaps", "nothing",
        "constant", "float", "words", "surrogates", "complex", "large", "lists", "arrow", "infinite",
        "decimals",
    )},
    "two": lambda n, draw: draw.choice(["no", "yes"], n).astype(object),
    "with gaps": lambda n, draw: draw.choice(["no", "yes", None], n).astype(object),
    "masked": lambda n, draw: np.ma.masked_array(draw.choice([1, 2], n), draw.random(n) < 0.3),
    "listed": lambda n, draw: draw.choice(["no", "yes"], n).tolist(),
    "rows": lambda n, draw: draw.choice(["no", "yes"], (n, 1)),
    "table": lambda n, draw: pd.DataFrame({"a": draw.choice(["f", "m"], n), "b": draw.choice(["1", None],
    n)}),
    "shorter": lambda n, draw: draw.choice(["no", "yes"], n - 1),
    "absent": lambda n, draw: None,
    "one": lambda n, draw: "yes",
}  # fmt: skip
HEADERS: tuple[Any, ...] = (
    "x0",
    "x1",
    "",
    " ",
    None,
    0,
    1.5,
    ("a", "b"),
    "label",
    "a\nb",
    "\x1b[31m",
    "=1+1",
    "é" * 99,
)
METHODS = ("predict", "predict_proba", "predict_groups_proba", "decision_function")


@dataclass(frozen=True)
class Spec:
    """A table to fit or to decide about, in a few words."""

    rows: int
    columns: tuple[tuple[Any, str], ...]
    label: str
    group: str
    index: str
    seed: int

    def table(self) -> tuple[pd.DataFrame, Any, Any]:
        draw = np.random.default_rng(self.seed)
        parts = [_series(COLUMNS[kind](self.rows, draw)) for _, kind in self.columns]
        X = (
            pd.concat([part.reset_index(drop=True) for part in parts], axis=1)
            if parts
            else pd.DataFrame(index=range(self.rows))
        )
        if parts:
            X.columns = pd.Index([name for name, _ in self.columns], dtype=object, tupleize_cols=False)
        y, a = LABELS[self.label](self.rows, draw), LABELS[self.group](self.rows, draw)
        return indexed(X, self.index), y, a


def _series(values: Any) -> pd.Series:
    """Values as they are: pandas would look for words that pyarrow cannot hold."""
    return values if isinstance(values, pd.Series) else pd.Series(values)


INDEXES = ("plain", "shuffled", "twice", "words", "times", "levels")


def indexed(X: pd.DataFrame, kind: str) -> pd.DataFrame:
    n = len(X)
    index: Any = {
        "plain": lambda: range(n),
        "shuffled": lambda: np.random.default_rng(0).permutation(n),
        "twice": lambda: np.zeros(n, int),
        "words": lambda: [f"row {k}" for k in range(n)],
        "times": lambda: pd.date_range("2020", periods=n),
        "levels": lambda: pd.MultiIndex.from_arrays([range(n), range(n)]),
    }[kind]()
    return X.set_axis(pd.Index(index) if not isinstance(index, pd.Index) else index, axis=0)


names = st.one_of(st.sampled_from(HEADERS), words)
column = st.tuples(names, st.sampled_from(sorted(COLUMNS)))
plain = st.tuples(st.sampled_from(["p", "q", "r"]), st.sampled_from(["float", "int", "text"]))
specs = st.builds(
    Spec,
    st.integers(1, 40),
    st.lists(st.one_of(plain, plain, column), max_size=5, unique_by=lambda column: repr(column[0])).map(
        tuple
    ),
    st.one_of(st.just("two"), st.sampled_from(sorted(LABELS))),
    st.one_of(st.just("with gaps"), st.sampled_from(sorted(LABELS))),
    st.sampled_from(INDEXES),
    st.integers(0, 99),
)
actions = st.sampled_from(["fit", "fit", "fit in another order", "trees", "audit", *METHODS])


def frame_cases(subjects: Subjects, count: int, seed: int) -> list[Case]:
    examples = drawn(st.tuples(actions, specs), count, seed, "frames")
    subjects.make("network")
    return [
        Case(f"{action} {spec}"[:600], lambda folder, a=action, s=spec: _tried(subjects, a, s, folder))
        for action, spec in examples
    ]


def _tried(subjects: Subjects, action: str, spec: Spec, folder: Path) -> str:
    def attempt() -> int:
        warnings.simplefilter("ignore")
        try:
            X, y, a = spec.table()
            if action == "fit":
                _judge(_small().fit(X, y, a), X)
            elif action == "fit in another order":
                index = "plain" if spec.index == "twice" else spec.index
                told_apart = replace(spec, label="two", group="with gaps", index=index)
                _fit_in_another_order(*told_apart.table())
            elif action == "trees":
                _judge(FairDecisions(folds=2, targets=(0.1,)).fit(X, y, a), X)
            elif action == "audit":
                str(audit(y, y, a))
            else:
                model = FairSSVAEClassifier.load(subjects.network, "cpu")
                known = subjects.table().X.iloc[: spec.rows].reset_index(drop=True)
                for place, name in zip(range(X.shape[1]), known, strict=False):
                    known[name] = X.iloc[:, place].set_axis(known.index)
                _check(model, action, indexed(known, spec.index))
        except InputError as reason:
            return refuse(reason)
        except (ValueError, TypeError) as reason:
            if not _of_sklearn(reason):
                raise
        return 0

    return wrong_with(forked(attempt, folder))


def _small() -> FairSSVAEClassifier:
    return tiny(hidden=4, trunk="mlp", epochs=1, options=FIT_OPTIONS)


def _fit_in_another_order(X: pd.DataFrame, y: Any, a: Any) -> None:
    """Labels and groups whose index says which row of X each belongs to, whatever their order."""
    order = np.random.default_rng(0).permutation(len(X))
    labels, groups = (pd.Series(each, index=X.index) for each in (y, a))
    as_given = _small().fit(X, labels, groups)
    other = _small().fit(X, labels.iloc[order], groups.iloc[order[::-1]])
    for method in METHODS:
        np.testing.assert_array_equal(getattr(as_given, method)(X), getattr(other, method)(X))


def _judge(model: Any, X: pd.DataFrame) -> None:
    for method in METHODS:
        if method != "predict_groups_proba" or model.knows_groups_:
            _check(model, method, X)


def _check(model: Any, method: str, X: pd.DataFrame) -> None:
    """An answer of the right shape and range."""
    answer = getattr(model, method)(X)
    assert len(answer) == len(X), f"{method} gives {len(answer)} rows for {len(X)}"
    if method == "predict":
        assert set(np.asarray(answer).tolist()) <= set(model.classes_.tolist())
    else:
        assert np.isfinite(answer).all(), f"{method} gives values that are not finite"
    if method.endswith("proba"):
        assert (answer >= 0).all(), f"{method} gives negative values"
        np.testing.assert_allclose(answer.sum(1), 1, atol=1e-5)


def _of_sklearn(reason: Exception) -> bool:
    """Whether scikit-learn's own validation refuses the input."""
    place = reason.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is not None and "/sklearn/utils/" in place.tb_frame.f_code.co_filename.replace("\\", "/")
