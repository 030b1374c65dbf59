"""Model cards: the numbers of the page, as Markdown and JSON, whatever names are like."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pyro_fairvae.auditing import Audit
from pyro_fairvae.base.documents import read_document
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.report import card_in_markdown, model_card, write_card, write_model_page
from pyro_fairvae.report.verdicts import verdicts
from pyro_fairvae.schema.documents import CardDocument
from pyro_fairvae.storage.stored_model import StoredModel
from tests.report.test_choosing import stored_and_audited
from tests.report.test_model_page import lines_of
from tests.support.browser import NASTY


@pytest.fixture(scope="module")
def trees() -> tuple[StoredModel, Audit]:
    return stored_and_audited()


def table_of(card: str, first: str) -> list[list[str]]:
    """The lines of the table whose first title is this one, without escapes."""
    lines = card.splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith(f"| {first} |"))
    end = next((k for k in range(start, len(lines)) if not lines[k].startswith("|")), len(lines))
    cells = [
        [cell.strip() for cell in line.replace("\\|", "∣").strip("|").split("|")] for line in lines[start:end]
    ]
    return [[cell.replace("\\", "") for cell in line] for k, line in enumerate(cells) if k != 1]


def test_a_card_has_the_numbers_of_the_page(trees: tuple[StoredModel, Audit], tmp_path: Path) -> None:
    model, found = trees
    write_model_page(tmp_path / "page.html", model, found, "model")
    card = model_card(model, found, "model")
    text = card_in_markdown(card)
    page = lines_of(tmp_path / "page.html", "Members to choose from")[1:]
    members = table_of(text, "member")[1:]
    assert [line[1:3] for line in members] == [line[1:3] for line in page]
    assert [line[3] for line in members] == [f"{line[3]} to {line[4]}" for line in page]
    assert [line[4] for line in members] == [line[5] for line in page]
    disparities = table_of(text, "disparity")[1:]
    for own, line in zip(disparities, lines_of(tmp_path / "page.html", "Disparities")[1:], strict=True):
        assert own[:4] == [*line[:3], line[5]]
    withheld = table_of(text, "withheld")[1:]
    page = lines_of(tmp_path / "page.html", "How often group and label are withheld")[1:]
    assert [line[2:] for line in withheld] == [line[2:] for line in page]
    turns = table_of(text, "measure")[1:]
    page = lines_of(tmp_path / "page.html", "What overturns each finding")[1:]
    assert turns == page
    assert card.first == verdicts(model, found)
    assert "## Intended use" in text
    assert "## Limits" in text


def test_a_card_for_programs_is_a_sealed_document_of_the_same_content(
    trees: tuple[StoredModel, Audit], tmp_path: Path
) -> None:
    model, found = trees
    card = model_card(model, found, "model")
    write_card(tmp_path / "card.json", card)
    again = read_document(tmp_path / "card.json", CardDocument, "a model card", sealed=True)
    assert again == card
    assert again.audit is not None
    for line in again.audit.disparities:
        expected = found.metrics.loc[line.measure, ["estimate", "low", "high"]].to_numpy(float)
        assert [line.estimate, line.low, line.high] == pytest.approx(expected.tolist())
    assert [member.decides for member in again.members].index(True) == model.selected
    write_card(tmp_path / "card.md", again)
    assert (tmp_path / "card.md").read_text() == card_in_markdown(card)
    content = json.loads((tmp_path / "card.json").read_text())
    content["members"][0]["error"] = 0.0
    (tmp_path / "card.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="does not match its SHA-256"):
        read_document(tmp_path / "card.json", CardDocument, "a model card")


def test_names_are_neither_html_nor_markdown(trees: tuple[StoredModel, Audit]) -> None:
    model, found = trees
    nasty = replace(model, source={"label": "a|b\n# c", "data": "`x`[y](z)"})
    text = card_in_markdown(model_card(nasty, found, f"{NASTY}*"))
    assert NASTY not in text
    assert "<script" not in text.replace("\\<", "")
    assert "a\\|b\\\\n\\# c" in text
    assert "\\`x\\`\\[y\\](z)" in text
    widths = {
        len(line.replace("\\|", "").split("|")) for line in table_lines(text, "| rate | group |")
    }  # a bar in a name is no new cell
    assert len(widths) == 1


def table_lines(text: str, start: str) -> list[str]:
    lines = text[text.index(start) :].splitlines()
    return lines[: next((k for k, line in enumerate(lines) if not line.startswith("|")), len(lines))]


def test_a_card_without_an_audit_says_what_is_missing(trees: tuple[StoredModel, Audit]) -> None:
    model, _ = trees
    card = model_card(model, None, "model")
    assert card.audit is None
    assert "No rows were audited." in card.missing
    assert "fairvae audit model DATA" in card_in_markdown(card)


def test_cards_have_an_ending_that_says_what_they_are(
    trees: tuple[StoredModel, Audit], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="unknown ending of a model card"):
        write_card(tmp_path / "card.txt", model_card(*trees, "model"))
