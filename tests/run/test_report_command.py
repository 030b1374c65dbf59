"""fairvae fit says first what is wrong with the member that decides; fairvae report writes page and cards."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.auditing import Audit
from pyro_fairvae.base.documents import read_document
from pyro_fairvae.report import card_in_markdown, verdicts
from pyro_fairvae.schema.documents import CardDocument
from pyro_fairvae.storage.stored_model import load_model
from tests.support.command_line import FEW_STEPS, run

TINY = ("--label", "hired", "--group", "sex", "--device", "cpu", "--quiet", *FEW_STEPS)


def people(rows: int, share: float, seed: int = 0) -> pd.DataFrame:
    """Men are hired and women are not, but for a few; or all but few are not."""
    draw = np.random.default_rng(seed)
    man = draw.random(rows) < 0.5
    hired = np.where(draw.random(rows) < 0.85, man, ~man) if share == 0.5 else draw.random(rows) < share
    stated = np.where(draw.random(rows) < 0.4, None, np.where(man, "m", "f"))
    return pd.DataFrame(
        {"x": man + draw.normal(0, 0.2, rows), "sex": stated, "hired": np.where(hired, "yes", "no")}
    )


@pytest.fixture(scope="module")
def unfair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A model that is not fair, and what fit printed."""
    folder, printed = tmp_path_factory.mktemp("report"), StringIO()
    people(500, 0.5).to_csv(folder / "people.csv", index=False)
    words = ("--lambdas", "0", "--epochs", "25", "--trunk", "mlp", "--set", "lr=0.01")
    with redirect_stdout(printed):
        assert run("fit", folder / "people.csv", *TINY, *words, "--out", folder / "model") == 0
    return folder / "model", printed.getvalue().splitlines()


@pytest.fixture(scope="module")
def model(unfair: tuple[Path, list[str]]) -> Path:
    return unfair[0]


def test_fit_and_the_page_say_first_that_a_member_is_not_fair(unfair: tuple[Path, list[str]]) -> None:
    model, printed = unfair
    assert printed[0] == "!" * 110
    assert printed[1].startswith("Not fair: the member that decides (λ = 0) has a deo of ")
    (line,) = verdicts(load_model(model), Audit.read(model / "audit.json"))
    assert run("report", model) == 0
    page = (model / "report.html").read_text()
    assert page.index(line) < page.index("<nav")
    assert f'<p class="notice" role="note">{line}</p>' in page


def test_fit_says_where_everybody_gets_one_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people(300, 0.03).to_csv(tmp_path / "people.csv", index=False)
    words = ("--lambdas", "0", "--epochs", "2", "--trunk", "mlp", "--out", tmp_path / "model")
    assert run("fit", tmp_path / "people.csv", *TINY, *words) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].startswith("Everybody gets one class: the member that decides (λ = 0) decides no for")
    assert run("report", tmp_path / "model") == 0
    assert "Everybody gets one class" in (tmp_path / "model" / "report.html").read_text()


def test_cards_are_written_beside_the_page(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cards = tmp_path / "card.md", tmp_path / "card.json"
    flags = [flag for card in cards for flag in ("--card", card)]
    assert run("report", model, *flags, "--out", tmp_path / "page.html") == 0
    assert "The model card is" in capsys.readouterr().out
    card = read_document(cards[1], CardDocument, "a model card", sealed=True)
    assert cards[0].read_text() == card_in_markdown(card)
    assert card.audit is not None
    found = Audit.read(model / "audit.json")
    assert card.audit.rows.rows == found.rows["rows"]
    assert found.by_gamma is not None
    assert len(card.audit.findings) == len(found.by_gamma.findings)
    assert found.members is not None
    assert found.members.audited == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--card", "card.pdf"), "unknown ending of --card '.pdf'"),
        (("--card", "card.md", "--card", "card.md"), "name the same file"),
        (("--card", "page.html"), "unknown ending of --card '.html'"),
        (("--card", "no/card.md"), "cannot write no/card.md"),
    ],
)
def test_cards_that_cannot_be_written_end_with_2_before_the_page(
    model: Path, flags: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run("report", model.resolve(), *flags, "--out", "page.html") == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_card_does_not_take_the_place_of_the_model(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", model, "--card", model / "model.json") == 2
    assert "which is read" in capsys.readouterr().err
