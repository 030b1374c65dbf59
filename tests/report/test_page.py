"""The page of a reproduction: well-formed, self-contained, escaped, and working in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data import LEVELS
from pyro_fairvae.report.comparison import (
    budget_lines,
    chosen_lines,
    dominance_lines,
    glance_lines,
    hypervolume_lines,
)
from pyro_fairvae.report.page import THEMES, Grid, Picture, Section, write_page
from pyro_fairvae.report.panels import (
    draw_every,
    draw_frontiers,
    draw_hypervolumes,
    frontiers_in_words,
    looks,
)
from pyro_fairvae.report.reproduction import reproduction_page
from pyro_fairvae.report.text import align
from pyro_fairvae.studies.comparison import budget_table, chosen_table, dominance_table, hypervolume_table
from tests.support.browser import NASTY, Reader, assert_self_contained, opened
from tests.support.comparisons import METHODS, made_up_results


def some_results(**changes: Any) -> pd.DataFrame:
    labels = METHODS | {"nasty": (NASTY, False)}
    gains = {"fair_ssvae": 0.03, "ss_vae": 0.0, "mfd_gty_gta": 0.05, "fairda": 0.0, "nasty": -0.01}
    return made_up_results(gains, seeds=3, labels=labels, **changes)


def some_recovery() -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "group": "gender", "level": level, "seed": seed, "channel": "a", "given": given,
                "says": "unavailable", "truth": rate, "mean": rate + 0.01 * seed, "q05": rate - 0.02,
                "q95": rate + 0.02, "rank": 0.5, "guide": rate,
            }
            for level, rates in LEVELS.items()
            for seed in range(2)
            for given, rate in zip(("female", "male"), rates, strict=True)
        ]
    )  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    results = some_results(metrics=("deo", "deopp"))
    one = results[results["metric"] == "deo"]
    draw_frontiers(folder / "panels.svg", one)
    draw_hypervolumes(folder / "volumes.png", hypervolume_table(results))
    pictures = [
        Picture(folder / "panels.svg", frontiers_in_words(one), "Frontiers " + "z" * 300),
        Picture(folder / "volumes.png", "Hypervolumes, as in the table.", NASTY),
    ]
    failures = [{"method": NASTY, "seed": 1, "reason": "the loss is not finite: " + "x" * 300}]
    settings = {"seeds": 3, "weights": (0.0, 1.0), "prior_a": "{preset: " + "y" * 300 + "}"}
    reproduction_page(
        folder / "page.html", results, some_recovery(), settings, {"torch": "2.4"}, failures,
        {"adult, gender": pictures},
    )  # fmt: skip
    return folder / "page.html"


def test_page_is_well_formed_and_accessible(page: Path) -> None:
    reader = Reader(page.read_text())
    assert reader.open == []
    assert reader.of("html") == [{"lang": "en"}]
    assert any(meta.get("name") == "viewport" for meta in reader.of("meta"))
    assert len(reader.of("img")) == 2
    assert all(image["alt"] for image in reader.of("img"))
    assert len(reader.of("table")) == len(reader.of("caption")) >= 8
    assert all(head["scope"] in ("row", "col") for head in reader.of("th"))
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {link["href"] for link in reader.of("a")} <= {f"#{name}" for name in ids}


def test_page_needs_no_network(page: Path) -> None:
    text = page.read_text()
    reader = Reader(text)
    assert_self_contained(text)
    (policy,) = (meta["content"] for meta in reader.of("meta") if "http-equiv" in meta)
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy


def test_page_escapes_what_it_is_given(page: Path) -> None:
    reader = Reader(page.read_text())
    assert len(reader.of("script")) == 1
    assert NASTY in [text for tag, text in reader.texts if tag == "th"]
    assert NASTY in [text for tag, text in reader.texts if tag == "figcaption"]
    assert any(NASTY in (image["alt"] or "") for image in reader.of("img"))


def test_page_says_what_was_found(page: Path) -> None:
    said = " ".join(text for _, text in Reader(page.read_text()).texts)
    assert "5 methods, measured at 174 points in all, on 2 panels (adult, gender; missingness sparse;" in said
    assert "over 3 seeds. 1 part failed." in said
    for words in ("Fair-SS-VAE", "MFD (true y, true a) †", "P(∅|female)", "test parts overlap", "not finite"):
        assert words in said


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("text", ["text", "quiet", "link"])
def test_text_stands_out_from_what_is_behind_it(theme: str, text: str) -> None:
    """By WCAG's ratio of luminances."""

    def luminance(colour: str) -> float:
        shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for behind in ("page", "raised"):
        low, high = sorted(luminance(THEMES[theme][name]) for name in (text, behind))
        assert (high + 0.05) / (low + 0.05) >= 4.5


def test_page_of_nothing_but_failures(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    reproduction_page(path, pd.DataFrame(), None, {}, {}, [{"method": "fairda", "reason": "no data"}], {})
    said = " ".join(text for _, text in Reader(path.read_text()).texts)
    assert "Nothing finished. 1 part failed." in said
    assert "no data" in said


def test_figures_that_cannot_be_embedded(tmp_path: Path) -> None:
    for name, words in (("figure.pdf", "unknown ending of the figure figure.pdf"), ("no.svg", "cannot read")):
        with pytest.raises(InputError, match=words):
            write_page(tmp_path / "page.html", "t", Section("s", [Picture(tmp_path / name, "alt", "")]))
    assert not (tmp_path / "page.html").exists()


def test_tables_print_as_text() -> None:
    results = some_results()
    volumes = hypervolume_table(results)
    for lines in (
        hypervolume_lines(volumes),
        glance_lines(volumes),
        dominance_lines(dominance_table(results)),
        budget_lines(budget_table(results)),
        chosen_lines(chosen_table(results)),
    ):
        assert len({len(line) for line in lines}) == 1
        assert len(align(lines).splitlines()) == len(lines)
    at_a_glance = {line[0]: line[1] for line in glance_lines(volumes)}
    assert at_a_glance["MFD (true y, true a) †"].endswith("▲")
    assert at_a_glance["FairDA"].endswith("▼")


def test_every_method_has_a_look_of_its_own() -> None:
    labels = {f"m{i}": (f"M{i}", i % 3 == 0) for i in range(24)} | METHODS
    results = made_up_results(dict.fromkeys(labels, 0.0), seeds=1, labels=labels, weights=(0.0,))
    found = looks(results)
    assert len({(look.colour, look.dashes) for look in list(found.values())[:24]}) == 24
    assert len({(look.colour, look.marker) for look in found.values()}) == len(labels)


def test_figures_of_one_seed_and_of_points_far_out_smoke(tmp_path: Path) -> None:
    results = some_results()
    results.loc[(results.method == "fairda") & (results.weight > 3), ["error", "disparity"]] = 0.6, 0.0
    results.loc[(results.method == "nasty") & (results.weight > 3), "disparity"] = float("nan")
    one = results[results.seed == 0]
    draw_frontiers(tmp_path / "panels.png", one, ["fair_ssvae", "fairda", "nasty"])
    draw_every(tmp_path / "every.png", one)
    draw_hypervolumes(tmp_path / "volumes.svg", hypervolume_table(one))
    assert (tmp_path / "panels.png").stat().st_size > 10_000
    with pytest.raises(InputError, match="shows one panel"):
        draw_frontiers(tmp_path / "two.png", pd.concat([one, one.assign(group="race")]))
    with pytest.raises(InputError, match="Did you mean 'fairda'"):
        draw_frontiers(tmp_path / "unknown.png", one, ["fairdaa"])


TRY = """
addEventListener("load", () => {
  const images = [...document.images];
  found.images = images.length;
  found.drawn = images.filter(image => image.naturalWidth > 0).length;
  found.window = innerWidth;
  found.width = document.documentElement.scrollWidth;
  found.widest = Math.max(...images.map(image => image.clientWidth));
  const table = [...document.querySelectorAll("table")].find(each => each.caption.textContent === "Numbers");
  const column = () => [...table.tBodies[0].rows].map(row => row.cells[1].textContent);
  const head = table.tHead.rows[0].cells[1], button = head.querySelector("button");
  const click = () => { button.click(); return [head.getAttribute("aria-sort"), column()]; };
  found.sorted = [click(), click()];
  button.focus();
  found.focused = document.activeElement === button;
  const size = document.querySelector("figure button"), shown = images[0].clientWidth;
  size.click();
  found.enlarged = [size.getAttribute("aria-pressed"), images[0].clientWidth > shown];
  found.width_enlarged = document.documentElement.scrollWidth;
  parent.postMessage(found, "*");
});
"""


def test_page_works_in_a_browser(page: Path, tmp_path: Path) -> None:
    lines = [["name", "number"], *(["x", number] for number in ("9.5 ± 1", "−2", "–", "10.1", "<0.001"))]
    extra = tmp_path / "extra.html"
    write_page(extra, "t", Section("s", [Grid("Numbers", lines)]))
    (table,) = re.findall(r"<div class=\"scroll\" role.*?</div>", extra.read_text(), re.DOTALL)
    text = page.read_text().replace("</main>", f"{table.replace('part-0-0', 'extra')}</main>", 1)
    for found in opened(text, TRY, tmp_path, phone=320):
        assert found["drawn"] == found["images"] == 2
        assert found["widest"] <= found["width"] <= found["window"]
        assert found["width_enlarged"] <= found["window"]
        assert found["sorted"] == [
            ["ascending", ["−2", "<0.001", "9.5 ± 1", "10.1", "–"]],
            ["descending", ["10.1", "9.5 ± 1", "<0.001", "−2", "–"]],
        ]
        assert found["focused"]
        assert found["enlarged"] == ["true", True]
