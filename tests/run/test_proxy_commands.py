"""fairvae fit with proxies and what withholding depends on; other commands on tables without them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyro_fairvae.run.fit import _columns_of_groups

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from tests.support.browser import Reader
from tests.support.command_line import FEW_STEPS, run

ROWS = 200
TINY = ("--lambdas", "0,1", "--epochs", "2", "--device", "cpu", "--quiet", *FEW_STEPS)
COLUMNS = ("--label", "hired", "--group", "sex", "--drop", "id")
PROXIES = ("--proxy", "district, height", "--proxy-proba", "m=p_m,f=p_f")
DEPENDS_ON = ("--withholding-depends-on", "years,label")


def people(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    is_m, hired = draw.integers(2, size=(2, rows))
    p_m = np.where(is_m, draw.beta(3, 2, size=rows), draw.beta(2, 3, size=rows)).round(4)
    table = pd.DataFrame(
        {
            "id": np.arange(rows),
            "district": np.where(draw.random(rows) < 0.2 + 0.6 * is_m, "north", "0010"),
            "age": draw.normal(40 + 8 * is_m, 10).round(1),
            "years": draw.poisson(2 + 4 * hired),
            "height": draw.normal(170 + 9 * is_m, 7).round(),
            "p_m": p_m,
            "p_f": (1 - p_m).round(4),
            "sex": np.where(is_m, "m", "f"),
            "hired": np.where(hired, "yes", "no"),
        }
    )
    table["sex"] = table["sex"].mask(draw.random(rows) < 0.3)
    table.loc[::9, ["p_m", "p_f"]] = np.nan
    return table


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, and a model of it."""
    where = tmp_path_factory.mktemp("proxies")
    people().to_csv(where / "people.csv", index=False)
    out = ("--out", where / "model")
    assert run("fit", where / "people.csv", *COLUMNS, *PROXIES, *DEPENDS_ON, *TINY, *out) == 0
    return where


def test_the_model_keeps_what_it_was_fitted_with(folder: Path) -> None:
    found = FairSSVAEClassifier.load(folder / "model", "cpu")
    assert list(found.feature_names_in_) == ["age", "years"]
    assert found.fit_.settings.withholding_depends_on == ("years", "label")
    assert found.source_["withholding_depends_on"] == ["years", "label"]
    assert found.source_["proxies"] == ["district", "height"]
    assert found.source_["proxy_proba"] == {"m": "p_m", "f": "p_f"}
    assert found.proxy_encoder_ is not None
    assert found.proxy_encoder_.names == (
        "district", "height", "log P(f)", "log P(m)", "proxy_proba is known",
    )  # fmt: skip


def test_other_commands_need_no_proxies(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With, without, or with other proxies: files are the same to the last byte."""
    whole = people(60, seed=1)
    tables = (
        whole,
        whole.drop(columns=["district", "height", "p_m", "p_f"]),
        whole.assign(district=3, height="tall", p_m=-7, p_f=None),
    )
    written = []
    for k, table in enumerate(tables):
        data, decided, audited, labels = (
            tmp_path / f"{name}-{k}.{ending}"
            for name, ending in (("data", "csv"), ("decided", "csv"), ("audit", "json"), ("labels", "csv"))
        )
        table.to_csv(data, index=False)
        assert run("predict", folder / "model", data, "--groups", "--keep", "id", "--out", decided) == 0
        assert run("audit", folder / "model", data, "--out", audited) == 0
        assert run("decide", folder / "model", data, "--out", labels) == 0
        written.append([path.read_bytes() for path in (decided, audited, labels)])
    assert written[0] == written[1] == written[2]
    assert "warning" not in capsys.readouterr().err


def test_the_page_names_them(folder: Path) -> None:
    assert run("report", folder / "model") == 0
    page = (folder / "model" / "report.html").read_text()
    words = " ".join(word for text in Reader(page).texts for word in text)
    assert "may depend on it and on: years, label." in words
    assert "Proxies, which tell of the group in fitting and never decide: district, height, log P(f)" in words


@pytest.mark.parametrize(
    ("words", "columns"),
    [
        ("", {}),
        ("m=p_m, f=p_f", {"m": "p_m", "f": "p_f"}),
        ("f, no=a,f, yes=b", {"f, no": "a", "f, yes": "b"}),  # groups of two attributes
        ("x=1=p", {"x=1": "p"}),
    ],
)
def test_columns_of_groups_in_words(words: str, columns: dict[str, str]) -> None:
    assert _columns_of_groups(words) == columns


@pytest.mark.parametrize("words", ["m", "m=", "=p", "m=p,f", "m=p,m=q"])
def test_columns_of_groups_that_cannot_be_read(words: str) -> None:
    with pytest.raises(InputError, match="--proxy-proba"):
        _columns_of_groups(words)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--proxy", "hired"), "'hired' in proxies is the label itself"),
        (("--proxy", "sex"), "'sex' in proxies is the group itself"),
        (("--proxy", "distict"), "Did you mean 'district'?"),
        (
            ("--proxy", "id"),
            "'id' in proxies is also in drop, proxy_proba or weights; give each column one role",
        ),
        (
            ("--proxy", "p_m", "--proxy-proba", "m=p_m,f=p_f"),
            "'p_m' in proxies is also in drop, proxy_proba or weights",
        ),
        (("--withholding-depends-on", "hired"), "is the label itself; write 'label'"),
        (("--withholding-depends-on", "sex"), "is the group itself, on which withholding always depends"),
        (("--withholding-depends-on", "yeers"), "Did you mean 'years'?"),
        (("--withholding-depends-on", "age", "--proxy", "age"), "'age' cannot be in both proxies and"),
        (("--proxy-proba", "m=p_m"), "proxy_proba has the columns 'm'; expected"),
        (("--proxy-proba", "m=p_m,x=p_f"), "proxy_proba has the columns 'm', 'x'; expected"),
        (("--proxy-proba", "m=age,f=years"), "proxy_proba is outside of [0, 1] in row"),
        (("--proxy-proba", "m=p_m,f=p_ff"), "Did you mean 'p_f'?"),
        (("--proxy-proba", "m=p_m,f=sex"), "'sex' is the label, a group or dropped"),
        (("--proxy-proba", "m=p_m,f=district"), "proxy_proba is not all numbers"),
        (("--proxy", "district,age,years,height,p_m,p_f"), "proxies name all 6 columns of X"),
    ],
)
def test_a_wrong_fit_is_one_line(
    given: tuple[str, ...], message: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    assert run("fit", folder / "people.csv", *COLUMNS, *given, *TINY, "--out", out) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
    assert not out.exists()
