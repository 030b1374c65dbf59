"""The page of a fitted model: self-contained, escaped, and saying what the model is."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.auditing import Audit, audit
from pyro_fairvae.base.files import write_json
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.estimator.state import stored_model
from pyro_fairvae.report import write_model_page
from tests.support.browser import NASTY, Reader, assert_self_contained, opened
from tests.support.user_tables import made_table, tiny

SECTIONS = [
    "Choose a member", "The frontier", "Who withholds", "Audit", "Figures for regulators", "Sensitivity",
    "Data", "Use and limits",
]  # fmt: skip
MONEY = "$0_{ to $50"  # what a formula would choke on
WIDE = "w" * 200


@pytest.fixture(scope="module")
def model() -> FairSSVAEClassifier:
    made = made_table(90)
    X = made.X.rename(columns={"x0": NASTY, "x1": WIDE})
    found = tiny(lambdas=(0.0, 1.0, 4.0)).fit(X, made.y_obs, made.a_obs.map({"f": MONEY, "m": NASTY}))
    found.source_ = {"label": NASTY, "data": "people.csv"}
    return found


@pytest.fixture(scope="module")
def audited(model: FairSSVAEClassifier) -> Audit:
    made = made_table(300, seed=1)
    X = made.X.rename(columns={"x0": NASTY, "x1": WIDE})
    groups = made.a_obs.map({"f": MONEY, "m": NASTY})
    return audit(made.y_obs, model.predict(X), groups, X=X, model=model)


@pytest.fixture(scope="module")
def page(model: FairSSVAEClassifier, audited: Audit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_model_page(path, stored_model(model, model.fit_), audited, "my models/first")
    return path


def lines_of(page: Path, caption: str) -> list[list[str]]:
    """The cells of a table, line by line, its titles first."""
    (table,) = re.findall(
        rf"<table>\s*<caption[^>]*><span>{caption}</span>.*?</table>", page.read_text(), re.S
    )
    lines = re.findall(r"<tr>.*?</tr>", table, re.S)
    return [
        ["".join(Reader(c).texts[0][1:2] if Reader(c).texts else "") for c in cells(line)] for line in lines
    ]


def cells(line: str) -> list[str]:
    return re.findall(r"<t[dh].*?</t[dh]>", line, re.S)


def test_page_is_well_formed_and_accessible(page: Path) -> None:
    reader = Reader(page.read_text())
    assert reader.open == []
    assert [text for tag, text in reader.texts if tag == "h2"] == SECTIONS
    assert len(reader.of("img")) == 2
    for image in reader.of("img"):
        assert len(image["alt"] or "") > 40
    assert len(reader.of("table")) == len(reader.of("caption")) == 10 + 1 + 5  # of the slider: rates, gains
    assert all(head["scope"] in ("row", "col", "rowgroup") for head in reader.of("th"))
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_page_needs_no_network_and_escapes_names(page: Path) -> None:
    text = page.read_text()
    reader = Reader(text)
    assert_self_contained(text)
    assert len(reader.of("script")) == 1
    for name in (NASTY, MONEY, WIDE):
        assert name in [said for tag, said in reader.texts if tag == "th"]


def test_page_shows_the_frontier_and_who_decides(page: Path, model: FairSSVAEClassifier) -> None:
    titles, *lines = lines_of(page, "Members to choose from")
    assert titles[:3] == ["λ", "error %", "deo %"]
    for (_, member), line in zip(model.frontier_.iterrows(), lines, strict=True):
        assert line[:3] == [
            f"{member['lambda']:g}",
            *(f"{100 * member[k]:.2f}" for k in ("error", "disparity")),
        ]
        assert line[6] == f"fairvae predict 'my models/first' DATA --lambda {member['lambda']:g}"
    assert [line[5] for line in lines].index("yes") == model.selected_


def test_page_shows_who_withholds(page: Path, model: FairSSVAEClassifier) -> None:
    lines = lines_of(page, "How often group and label are withheld")[1:]
    for line, (_, channel) in zip(lines, model.channels_.iterrows(), strict=True):
        assert line[:2] == [channel["what"], channel["of"]]
        assert line[2:] == [f"{channel[key]:.3f}" for key in ("withheld", "low", "high")]


def test_page_shows_the_audit_and_the_data(page: Path, model: FairSSVAEClassifier, audited: Audit) -> None:
    for line in lines_of(page, "Disparities")[1:]:
        assert float(line[1]) == pytest.approx(audited.metrics.loc[line[0], "estimate"], abs=6e-4)
    assert len(lines_of(page, "Rates of decisions by group")) == 1 + len(audited.rates)
    said = " ".join(text for tag, text in Reader(page.read_text()).texts if tag == "p")
    assert "300 rows, of which" in said
    assert "Fitted to people.csv." in said
    assert "Do not use them as a statement about a person" in said
    for note in audited.notes:
        assert f"Note: {note}" in said
    columns = {line[0]: line[1:] for line in lines_of(page, "Columns")[1:]}
    assert list(columns) == list(model.feature_names_in_)
    assert columns["c"] == ["category", "4", "0"]
    counts = {line[0]: int(line[1]) for line in lines_of(page, "Labels")[1:]}
    made = made_table(90)
    assert counts == made.y_obs.value_counts().to_dict() | {"not stated": made.y_obs.isna().sum()}


def test_page_of_an_audit_from_json_is_the_same(
    page: Path, model: FairSSVAEClassifier, audited: Audit, tmp_path: Path
) -> None:
    write_json(tmp_path / "audit.json", audited.to_dict())
    again = Audit.read(tmp_path / "audit.json")
    write_model_page(tmp_path / "page.html", stored_model(model, model.fit_), again, "my models/first")

    def text(path: Path) -> str:
        return re.sub(r"base64,[A-Za-z0-9+/=]+", "", path.read_text())

    assert text(tmp_path / "page.html") == text(page)


def test_pages_with_little_to_say(tmp_path: Path) -> None:
    made = made_table(60)
    path = tmp_path / "page.html"
    model = tiny(lambdas=(0.0,)).fit(made.X, made.y)
    write_model_page(path, stored_model(model, model.fit_), None, "model")
    said = " ".join(text for _, text in Reader(path.read_text()).texts)
    assert "designed to be fair to no group" in said
    assert "No rows were audited. What is missing until then" in said
    assert "To audit new rows:" in said
    assert "fairvae audit model DATA --sensitivity --out model/audit.json" in said
    assert "The model has one member" in said
    assert "no rates by group" in said
    assert "Fitted in Python." in said
    assert lines_of(path, "Members to choose from")[1][2:4] == ["–", "–"]
    model.frontier_["error"] = np.nan
    write_model_page(path, stored_model(model, model.fit_), None, "model")
    assert lines_of(path, "Members to choose from")[1][1] == "–"


def test_page_of_many_groups_and_columns_smoke(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    X = pd.DataFrame(draw.normal(size=(120, 60))).rename(columns=str)
    model = tiny(epochs=1).fit(X, draw.integers(2, size=120), np.arange(120) % 12)
    write_model_page(tmp_path / "page.html", stored_model(model, model.fit_), None, "model")
    assert "Columns (60 lines)" in (tmp_path / "page.html").read_text()


MEASURE = """
addEventListener("load", () => {
  const images = [...document.images];
  found.drawn = images.filter(image => image.naturalWidth > 0).length;
  found.window = innerWidth;
  found.width = document.documentElement.scrollWidth;
  found.body = document.body.scrollWidth;
  parent.postMessage(found, "*");
});
"""


def test_page_fits_a_phone_and_a_screen(page: Path, tmp_path: Path) -> None:
    for found in opened(page.read_text(), MEASURE, tmp_path, phone=390):
        assert found["drawn"] == 2
        assert max(found["width"], found["body"]) <= found["window"]
