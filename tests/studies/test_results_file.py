"""Stored results, and the tables and figures that are made of them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.report.comparison import percent
from pyro_fairvae.studies import results_file
from pyro_fairvae.studies.comparison import attained, hypervolume, hypervolume_table, power_table, wins_table
from pyro_fairvae.studies.results_file import FILE, MEASURED, about, read_tables, store_tables
from tests.support.browser import assert_self_contained
from tests.support.command_line import run
from tests.support.comparisons import made_up_results

GAINS = {"fair_ssvae": 0.03, "ss_vae": 0.0, "mfd_gty_gta": 0.05, "fairda": 0.0}


def small_results() -> pd.DataFrame:
    found = made_up_results(GAINS, seeds=3, metrics=("deo", "deopp"), noise=0.001)
    found.loc[found["metric"] == "deopp", "floor"] = np.nan
    return found


def some_recovery() -> pd.DataFrame:
    lines = [
        {"dataset": "adult", "group": "gender", "level": "sparse", "seed": seed, "channel": "a", "given":
        given,
         "says": "unavailable", "truth": rate, "mean": rate + 0.01 * seed, "q05": rate - 0.02,
         "q95": rate + 0.02, "rank": 0.5, "guide": rate}
        for seed in range(2)
        for given, rate in (("Female", 0.8), ("Male", 0.4))
    ]  # fmt: skip
    return pd.DataFrame(lines)


def test_tables_come_back_as_they_were(tmp_path: Path) -> None:
    results, recovery = small_results(), some_recovery()
    path = store_tables(
        tmp_path,
        {"results": results, "recovery": recovery, "about": about("adult", {"seeds": 3, "a": (1, 2)})},
    )
    assert path == tmp_path / FILE
    found = read_tables(tmp_path)
    assert set(found) == {"results", "recovery", "about"}
    for name, expected in (("results", results), ("recovery", recovery)):
        columns = list(expected)
        pd.testing.assert_frame_equal(found[name][columns], expected, rtol=1e-6, check_dtype=False)
        bools = [column for column in columns if expected[column].dtype == bool]
        assert all(found[name][column].dtype == bool for column in bools)
    assert dict(found["about"][["name", "value"]].to_numpy().tolist()) == {"seeds": "3", "a": "1, 2"}
    assert set(MEASURED) <= set(found["results"])


def test_lines_of_a_data_set_are_replaced_and_others_stay(tmp_path: Path) -> None:
    results = small_results()
    other = results.assign(dataset="celeba")
    store_tables(tmp_path, {"results": pd.concat([results, other])})
    store_tables(tmp_path, {"results": results[results["seed"] == 0]})
    store_tables(tmp_path, {"recovery": some_recovery()})
    found = read_tables(tmp_path)
    counts = found["results"]["dataset"].value_counts().to_dict()
    assert counts == {"celeba": len(other), "adult": int((results["seed"] == 0).sum())}
    assert len(found["recovery"]) == 4


def test_a_file_of_a_size_for_the_repository(tmp_path: Path) -> None:
    """As many lines as the paper's preset has."""
    rng = np.random.default_rng(0)
    one = pd.concat([small_results()] * 60, ignore_index=True)
    one[list(MEASURED)] = rng.random((len(one), len(MEASURED)))
    assert len(one) > 7000
    assert store_tables(tmp_path, {"results": one}).stat().st_size < 500_000


def test_what_cannot_be_read_or_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=f"has no {FILE}"):
        read_tables(tmp_path)
    (tmp_path / FILE).write_bytes(b"PAR1 not at all")
    with pytest.raises(InputError, match="is broken"):
        read_tables(tmp_path)
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / FILE)
    with pytest.raises(InputError, match="not a file of results"):
        read_tables(tmp_path)
    with pytest.raises(InputError, match=r"unknown tables \['others'\]"):
        store_tables(tmp_path / "new", {"others": pd.DataFrame({"x": [1]})})
    with pytest.raises(InputError, match="no results to store"):
        store_tables(tmp_path / "new", {})
    monkeypatch.setattr(results_file, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="needs pyarrow"):
        read_tables(tmp_path)


def test_every_table_and_figure_from_the_file_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = small_results()
    ladder = pd.concat(
        [
            results[(results["method"] == "fairda") & (results["metric"] == "deo")].assign(
                method=name, label=label, error=lambda lines, less=less: lines["error"] - less
            )
            for name, label, less in (("as_printed", "as printed", 0), ("bracket", "likelihoods", 0.01))
        ]
    )
    tables = {"results": results, "recovery": some_recovery(), "ladder": ladder}
    store_tables(tmp_path / "stored", tables | {"about": about("adult", {"ours": "fair_ssvae"})})
    assert run("reproduce", "--from", tmp_path / "stored", "--out", tmp_path / "made") == 0
    assert "tables.md" in capsys.readouterr().out
    made = tmp_path / "made"
    for metric in ("deo", "deopp"):
        for name in (f"adult-gender-{metric}-sparse-default", f"adult-gender-{metric}-default-hypervolumes"):
            text = (made / f"{name}.svg").read_text()
            assert 380 < float(re.findall(r'<svg[^>]* width="([\d.]+)pt"', text)[0]) * 96 / 72 < 400  # of CSS
    assert (made / "ladder.svg").stat().st_size > 5000
    page = (made / "report.html").read_text()
    assert_self_contained(page)
    assert page.count('class="narrow"') == 5
    text = (made / "tables.md").read_text()
    volumes = hypervolume_table(results)
    for line in volumes.to_dict("records"):
        assert f"| {percent(line['mean'])} ± {percent(line['half_width'])} |" in text
    gained = re.findall(r"\| gender \| likelihoods \| [^|]* \| ([\d.]+) ±", text)
    first, second = (
        np.mean(
            [
                hypervolume(of[["error", "disparity"]], (0.247, 0.2))
                for _, of in ladder[ladder["method"] == name].groupby("seed")
            ]
        )
        for name in ("as_printed", "bracket")
    )
    assert float(gained[0]) == pytest.approx(100 * (second - first), abs=0.01)
    assert "P(∅" in text
    assert run("reproduce", "--from", tmp_path / "stored", "--ours", "fairda") == 0
    assert "ours better" not in capsys.readouterr().out
    assert (tmp_path / "stored" / "tables.md").exists()
    assert run("reproduce", "--from", tmp_path / "stored", "--seeds", "3") == 2
    assert "--seeds cannot be given with --from" in capsys.readouterr().err
    assert run("reproduce", "--from", tmp_path / "stored", "--ours", "fairdaa") == 2
    assert "fairda" in capsys.readouterr().err


def test_the_area_beside_a_frontier_is_the_hypervolume() -> None:
    own = small_results().query("method == 'fairda' and metric == 'deo'")
    grid = np.linspace(0, 0.2, 20_001)
    curve = attained(own, grid)
    area = ((0.247 - curve["error"]) / 0.247).iloc[:-1].mean()
    volumes = [hypervolume(of[["error", "disparity"]], (0.247, 0.2)) for _, of in own.groupby("seed")]
    assert area == pytest.approx(np.mean(volumes), abs=1e-4)
    assert (curve["error"].diff().dropna() <= 0).all()


def test_wins_and_losses_count_panels() -> None:
    volumes = hypervolume_table(small_results())
    wins = wins_table(volumes).set_index("method")
    assert wins.loc["fairda", ["panels", "ahead", "better", "worse"]].tolist() == [2, 2, 2, 0]
    assert wins.loc["mfd_gty_gta", ["ahead", "better"]].tolist() == [0, 0]
    assert "fair_ssvae" not in wins.index
    needed = power_table(small_results()).set_index(["metric", "method"])
    assert (needed["needed"] <= needed["needed_of_all"].fillna(np.inf)).all()
    assert len(needed) == 6
