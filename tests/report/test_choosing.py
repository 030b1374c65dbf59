"""The slider of a model's page: its structure, what it says, and moved by keys in Chromium."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from pyro_fairvae import load
from pyro_fairvae.auditing import Audit, NumberAudit, audit
from pyro_fairvae.auditing.members import with_members
from pyro_fairvae.auditing.number_audit import audit_numbers
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.estimator.fair_decisions import FairDecisions
from pyro_fairvae.estimator.regressor import FairSSVAERegressor
from pyro_fairvae.estimator.state import stored_model
from pyro_fairvae.report import write_model_page
from pyro_fairvae.report.choosing import SideBySide, choosing, in_order
from pyro_fairvae.report.page import Bars, Chooser
from pyro_fairvae.storage.stored_model import StoredModel
from tests.support.browser import NASTY, Reader, Tab, assert_self_contained
from tests.support.user_tables import SMALLEST, made_table, tiny

WIDE = "w" * 120


def stored_and_audited() -> tuple[StoredModel, Audit]:
    """Trees settled to targets, whose groups and labels have names that a page must escape."""
    made, new = made_table(240), made_table(300, seed=1)
    groups, labels = {"f": WIDE, "m": NASTY}, {"no": "no", "yes": NASTY}
    model = FairDecisions(targets=(0.2, 0.05)).fit(made.X, made.y_obs.map(labels), made.a_obs.map(groups))
    found = audit(new.y_obs.map(labels), model.predict(new.X), new.a_obs.map(groups), X=new.X, model=model)
    found = with_members(found, model.predict_members(new.X), 0, model.selected_)
    return model.stored(), replace(found, by_gamma=found.sensitivity(gammas=(1, 2)))


@pytest.fixture(scope="module")
def trees() -> tuple[StoredModel, Audit]:
    return stored_and_audited()


@pytest.fixture(scope="module")
def page(trees: tuple[StoredModel, Audit], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("slider") / "page.html"
    write_model_page(path, *trees, "model")
    return path


def attribute(reader: Reader, tag: str, name: str) -> list[str | None]:
    return [attributes[name] for attributes in reader.of(tag) if name in attributes]


def test_the_slider_is_a_labelled_range_of_all_members(page: Path, trees: tuple[StoredModel, Audit]) -> None:
    model, _ = trees
    reader = Reader(page.read_text())
    assert reader.open == []
    assert_self_contained(page.read_text())
    (slider,) = reader.of("input")
    assert (slider["type"], slider["min"], slider["max"], slider["step"]) == ("range", "0", "2", "1")
    assert slider["value"] == str(in_order(model).index(model.selected))
    assert slider["id"] in attribute(reader, "label", "for")
    (told,) = reader.of("output")
    assert told["aria-live"] == "polite"
    assert slider["aria-describedby"] == told["id"]
    assert len(reader.of("script")) == 1
    names = attribute(reader, "div", "data-name")
    expected = ["no target", "target 0.2", "target 0.05"]
    expected[in_order(model).index(model.selected)] += " (decides)"
    assert names == expected
    assert NASTY not in page.read_text()


def test_choices_have_the_figures_of_the_audit(trees: tuple[StoredModel, Audit]) -> None:
    model, found = trees
    chooser = next(block for block in choosing(model, found, "model") if isinstance(block, Chooser))
    assert found.members is not None
    for choice, k in zip(chooser.choices, in_order(model), strict=True):
        line = model.frontier.iloc[k]
        assert f"error {100 * line['error']:.2f} %, deo {100 * line['disparity']:.2f} %" in choice.words
        rates, *changes = [block for block in choice.blocks if isinstance(block, Bars)]
        expected = found.members.members[k]
        assert [bar.value for bar in rates.bars] == [rate.estimate for rate in expected.rates]
        assert [bar.ends for bar in rates.bars] == [
            f"[{100 * (rate.low or 0):.1f}, {100 * (rate.high or 0):.1f}]" for rate in expected.rates
        ]
        if k == found.members.against:
            assert changes == []
        else:
            assert [bar.value for bar in changes[0].bars] == [rate.estimate for rate in expected.changes]
    chosen = found.members.members[model.selected].measures
    for measure in chosen:
        assert measure.estimate == pytest.approx(found.metrics.loc[measure.measure, "estimate"])


def test_a_model_without_an_audit_shows_its_own_rows_and_names_what_adds_the_audit(
    trees: tuple[StoredModel, Audit], tmp_path: Path
) -> None:
    model, found = trees
    sides = SideBySide.of(model, None)
    assert sides is not None
    assert sides.document == model.members
    write_model_page(tmp_path / "page.html", model, None, "my model")
    said = " ".join(text for _, text in Reader((tmp_path / "page.html").read_text()).texts)
    assert "What is missing until then" in said
    assert "fairvae audit 'my model' DATA --sensitivity --out 'my model/audit.json'" in said
    assert "fairvae report 'my model'" in said
    write_model_page(tmp_path / "page.html", model, replace(found, by_gamma=None, members=None), "model")
    said = " ".join(text for _, text in Reader((tmp_path / "page.html").read_text()).texts)
    assert "This audit says nothing of the members that do not decide." in said
    assert "does not say how far withholding may depart" in said
    older = replace(model, members=None)
    write_model_page(tmp_path / "page.html", older, None, "model")
    assert "This model keeps no rates by group" in (tmp_path / "page.html").read_text()


def test_an_audit_of_another_frontier_or_member_is_not_taken_for_this_one(
    trees: tuple[StoredModel, Audit], tmp_path: Path
) -> None:
    model, found = trees
    shorter = replace(model, frontier=model.frontier[:2], selected=0)
    assert SideBySide.of(replace(shorter, members=None), found) is None
    other = (model.selected + 1) % 3
    write_model_page(tmp_path / "page.html", replace(model, selected=other), found, "model")
    assert "This audit is of target" in (tmp_path / "page.html").read_text() or model.selected == 0


def test_weights_are_ordered_and_named(tmp_path: Path) -> None:
    made = made_table(90)
    model = tiny(lambdas=(1.0, 0.0, 4.0)).fit(made.X, made.y_obs, made.a_obs)
    assert model.members_ is not None
    assert model.members_.against == 1
    stored = stored_model(model, model.fit_)
    write_model_page(tmp_path / "page.html", stored, None, "model")
    names = attribute(Reader((tmp_path / "page.html").read_text()), "div", "data-name")
    assert [str(name).removesuffix(" (decides)") for name in names] == ["λ = 0", "λ = 1", "λ = 4"]
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").members == model.members_
    fewer = replace(
        stored, members=msgspec.structs.replace(model.members_, members=model.members_.members[:2])
    )
    fewer.save(tmp_path / "other")
    with pytest.raises(InputError, match="2 members are described for 3 on the frontier"):
        load(tmp_path / "other")


def test_predictors_of_numbers_have_a_slider_of_means(tmp_path: Path) -> None:
    made = made_table(160)
    y = pd.Series(40 + 5.0 * (made.y == "yes") + np.random.default_rng(0).normal(size=160))
    model = FairSSVAERegressor(
        lambdas=(0.0, 1.0), epochs=2, hidden=8, layers=1, intervals="given_h", options=SMALLEST
    ).fit(made.X, y.mask(np.arange(160) % 5 == 0), made.a_obs)
    assert model.members_ is not None
    assert (model.predict_members(made.X)[model.selected_] == model.predict(made.X)).all()
    found = audit_numbers(y, model.predict(made.X), made.a_obs, attributes=model.attributes_)
    write_model_page(tmp_path / "page.html", model.stored(), found, "model")
    text = (tmp_path / "page.html").read_text()
    reader = Reader(text)
    assert reader.open == []
    assert_self_contained(text)
    assert [str(name).removesuffix(" (predicts)") for name in attribute(reader, "div", "data-name")] == [
        "λ = 0",
        "λ = 1",
    ]
    assert "Mean change of predictions against λ = 0" in text
    assert "mean prediction" in text
    assert isinstance(found, NumberAudit)


@pytest.fixture(params=[390, 1280])
def tab(request: pytest.FixtureRequest, page: Path, tmp_path: Path) -> Iterator[Tab]:
    opened = Tab(page, tmp_path, request.param)
    yield opened
    opened.close()


NOW = """({
  value: document.querySelector(".control input").value,
  valuetext: document.querySelector(".control input").getAttribute("aria-valuetext"),
  told: document.querySelector(".control output").textContent,
  shown: [...document.querySelectorAll(".choice")].filter(each => each.offsetParent !== null)
    .map(each => each.dataset.name),
  rates: [...document.querySelectorAll(".choice:not([hidden]) table.bars")[0].querySelectorAll("td.number")]
    .map(each => each.textContent),
  marked: [...document.querySelectorAll("svg.frontier g.here")].map(each => each.dataset.choice),
  back: document.querySelector(".ends button").disabled,
  focus: document.activeElement.tagName + document.activeElement.type,
  width: document.documentElement.scrollWidth - innerWidth,
})"""


def test_keys_move_the_slider_and_all_that_it_shows(tab: Tab, trees: tuple[StoredModel, Audit]) -> None:
    model, found = trees
    assert found.members is not None
    order = in_order(model)

    def is_at(place: int) -> None:
        now: dict[str, Any] = tab.ask(NOW)
        k = order[place]
        assert now["value"] == str(place)
        assert now["shown"] == [now["valuetext"]]
        assert now["valuetext"].removesuffix(" (decides)").lower() == now["told"].partition(":")[0].lower()
        assert f"error {100 * model.frontier['error'][k]:.2f} %" in now["told"]
        assert found.members is not None
        assert [re.split(r" %", words)[0] for words in now["rates"]] == [
            f"{100 * (rate.estimate or 0):.1f}" for rate in found.members.members[k].rates
        ]
        assert now["marked"] == [str(place)]
        assert now["back"] == (k == model.selected)
        assert now["width"] <= 0

    is_at(order.index(model.selected))
    while tab.ask("document.activeElement.type") != "range":
        tab.press("Tab")
    tab.press("Home")
    is_at(0)
    tab.press("ArrowRight")
    is_at(1)
    tab.press("End")
    is_at(2)
    tab.press("ArrowLeft")
    is_at(1)
    if order[1] == model.selected:
        tab.press("Home")
    tab.press("Tab")
    assert tab.ask("document.activeElement.textContent").startswith("Back to")
    tab.press("Enter")
    is_at(order.index(model.selected))
    assert tab.ask(NOW)["focus"] == "INPUTrange"


def test_paper_has_all_members_in_a_table_and_no_slider(tab: Tab) -> None:
    tab.call("Emulation.setEmulatedMedia", media="print")
    tab.ask("dispatchEvent(new Event('beforeprint'))")
    shown = "[...document.querySelectorAll('{}')].filter(each => each.offsetParent !== null).length"
    assert tab.ask(shown.format(".control, .choice, nav, figure button")) == 0
    rows = tab.ask(
        """[...document.querySelectorAll("table")]
          .find(each => each.caption.textContent === "Groups under every member").tBodies[0].rows.length"""
    )
    assert rows == 3 * 3 + 2 * 3 * 3 + 2 * 2 * 2  # measures; rates by group; gains and losses by group
    assert tab.ask("document.querySelectorAll('details:not([open])').length") == 0
    tab.ask("dispatchEvent(new Event('afterprint'))")


def test_sliders_are_named_to_screen_readers(tab: Tab) -> None:
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    (slider,) = (node for node in nodes if node.get("role", {}).get("value") == "slider")
    assert slider["name"]["value"] == "Target: the largest disparity that is allowed (3 members)"
    assert not any(
        node.get("role", {}).get("value") == "graphics-document" for node in nodes
    )  # drawings repeat what is said
