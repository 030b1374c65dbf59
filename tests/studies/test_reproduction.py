"""The grid of all methods: which jobs there are, what they say, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import recall_score, zero_one_loss

from pyro_fairvae import __version__
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.options import build
from pyro_fairvae.baselines import METHODS, Task
from pyro_fairvae.boosting.scores import BoostedScores
from pyro_fairvae.data import LEVELS, Missingness, Table, load, split
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.studies import reproduction
from pyro_fairvae.studies.jobs import JobFiles
from pyro_fairvae.studies.pools import Attempt
from pyro_fairvae.studies.reproduction import (
    COMPARED,
    GRID_PRESETS,
    ReproduceConfig,
    all_jobs,
    job_of,
    jobs_of,
    panels_of,
    plan,
    preset,
    result_lines,
    run_job,
)
from tests.support.command_line import run

FEW = ["--methods", "ss_vae,reweighting,mfd_gty_gta", "--workers", "2", "--quiet"]
SMALL = {"dataset": "synthetic", "groups": "group", "levels": "sparse", "metrics": "deo", "epochs": 2,
         "batch": 128, "rows": 600, "weights": 2, "seeds": 1}  # fmt: skip


def keys(method: str) -> set[str]:
    config = build(ReproduceConfig, {"methods": method, "seeds": 1, "groups": "gender"})
    return {job_of(config, *panel).key for panel in panels_of(config)}


def test_panels_share_the_runs_that_are_the_same_for_them() -> None:
    assert len(keys("fair_ssvae")) == 6  # 3 levels, 2 metrics
    assert len(keys("oracle")) == 2  # the true groups, whatever is hidden
    assert len(keys("ss_vae")) == len(keys("fairda")) == 3  # no metric is asked for
    assert len(keys("mfd_gty_gta")) == 1


def test_methods_share_their_member_at_weight_0() -> None:
    config = build(ReproduceConfig, SMALL | {"methods": "fair_ssvae,soft,stated_risk", "weights": 3})
    jobs = {job.config["method"]: job.config["weights"] for job in all_jobs(config)}
    assert jobs == {
        "ss_vae": [0.0],
        "fair_ssvae": [0.1, 0.4],
        "soft": [0.1, 0.4],
        "stated_risk": [0.0, 0.1, 0.4],
    }
    alone = build(ReproduceConfig, SMALL | {"methods": "fair_ssvae", "weights": 1})
    assert [job.config["method"] for job in all_jobs(alone)] == ["ss_vae"]
    panel = ("group", "sparse", "deo", "fair_ssvae", 0, "default")
    records = [run_job(job.config) for job in jobs_of(config, panel)]
    lines = result_lines(config, panel, records, 1.0)
    assert [line["weight"] for line in lines] == [0.0, 0.1, 0.4]
    plain = records[0]["judged"]["deo"]["members"][0]
    assert (lines[0]["error"], lines[0]["disparity"]) == (plain["test"]["error"], plain["test"]["deo"])
    assert sum(line["selected"] for line in lines) == 1


def test_presets_are_what_they_say() -> None:
    quick = build(ReproduceConfig, GRID_PRESETS["quick"])
    assert (set(quick.groups), quick.levels, quick.metrics) == ({"gender", "race"}, ("sparse",), ("deo",))
    assert (set(quick.methods), quick.seeds) == (set(METHODS), 3)
    paper = build(ReproduceConfig, GRID_PRESETS["paper"])
    assert (set(paper.levels), set(paper.metrics), paper.seeds) == (set(LEVELS), set(COMPARED), 5)


def test_a_job_says_what_its_method_does_on_test_rows() -> None:
    config = build(ReproduceConfig, SMALL)
    job = job_of(config, "group", "sparse", "deo", "reweighting", 0).config
    record = run_job(job)
    table = load("synthetic", "group").take(600, 0)
    parts = split(table, Missingness(), 0)
    settings = build(Settings, {"epochs": 2, "batch": 128})
    fitted = METHODS["reweighting"].fit(Task(parts.train, parts.validation, settings, 0), job["weights"])
    decided = fitted.decide(torch.from_numpy(parts.test.x)).numpy()
    assert set(record["judged"]) == set(COMPARED)
    for k, member in enumerate(record["judged"]["deo"]["members"]):
        assert member["test"]["error"] == pytest.approx(zero_one_loss(parts.test.y, decided[k]))
        rates = [
            [recall_score(parts.test.y[own], decided[k][own], pos_label=y) for own in groups(parts.test.a)]
            for y in range(2)
        ]
        gaps = [abs(first - second) for first, second in rates]
        assert member["test"]["deo"] == pytest.approx(max(gaps))
        assert member["test"]["deopp"] == pytest.approx(gaps[1])
        stated = parts.validation.y_obs.numpy() < 2
        seen = fitted.decide(parts.validation.x)[k].numpy()[stated]
        expected = zero_one_loss(parts.validation.y_obs.numpy()[stated], seen)
        assert member["val"]["error"] == pytest.approx(expected)
    assert record["constant_error"] == pytest.approx(min(parts.test.y.mean(), 1 - parts.test.y.mean()))


def groups(a: np.ndarray) -> list[np.ndarray]:
    return [a == g for g in range(2)]


def test_the_run_without_risk_says_who_withholds() -> None:
    config = build(ReproduceConfig, SMALL)
    record = run_job(job_of(config, "group", "sparse", "deo", "ss_vae", 0).config)
    rows = {
        line["given"]: line
        for line in record["recovery"]
        if line["channel"] == "a" and line["says"] == "unavailable"
    }
    assert [rows[group]["truth"] for group in "01"] == pytest.approx(list(LEVELS["sparse"]))
    assert all(line["q05"] < line["mean"] < line["q95"] for line in rows.values())


def test_the_method_as_printed_says_who_withholds_without_intervals() -> None:
    config = build(ReproduceConfig, SMALL | {"methods": "as_printed,ss_vae"})
    jobs = {job.config["method"]: job for job in all_jobs(config)}
    assert set(jobs) == {"ss_vae_as_printed", "as_printed", "ss_vae"}
    record = run_job(jobs["ss_vae_as_printed"].config)
    rows = {line["given"]: line for line in record["recovery"] if line["says"] == "unavailable"}
    assert [rows[group]["truth"] for group in "01"] == pytest.approx(list(LEVELS["sparse"]))
    assert all(0 < line["mean"] < 1 and "q05" not in line for line in rows.values())


def test_a_process_grows_the_trees_of_a_table_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For methods of one split; the oracle's are grown on what is hidden from others."""
    grown: list[int] = []
    learn = BoostedScores.learn

    def counted(*arguments: object) -> BoostedScores:
        grown.append(int((arguments[0].a_obs == 2).sum()))  # type: ignore[attr-defined]
        return learn(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(reproduction, "_GROWN", {})
    monkeypatch.setattr(BoostedScores, "learn", staticmethod(counted))
    config = build(ReproduceConfig, SMALL | {"trunks": "best", "methods": "reweighting,stated_risk,oracle"})
    for job in all_jobs(config):
        run_job(job.config)
    assert len(grown) == 2
    assert grown[0] > 0 == grown[1]


def test_the_plan_grows_with_the_grid_and_learns_from_records(tmp_path: Path) -> None:
    methods = {"methods": "fairda,reweighting"}
    one, many = (plan(build(ReproduceConfig, SMALL | methods | {"seeds": seeds}), 1) for seeds in (1, 40))
    assert 10 * one.seconds < many.seconds
    assert many.lines["jobs"].tolist() == [40, 40]
    assert not many.lines["recorded"].any()
    config = build(ReproduceConfig, SMALL | methods | {"seeds": 4})
    files = JobFiles(tmp_path, __version__)
    for job in all_jobs(config)[:1]:  # 100 s for the first FairDA
        files.write(job, Attempt(job.key, {}, None, 100.0))
    first, second = plan(config, 2, tmp_path).lines.to_dict("records")
    assert (first["method"], first["done"], first["recorded"], second["done"]) == ("fairda", 1, True, 0)
    assert first["seconds"] == pytest.approx(100)
    assert first["hours"] == pytest.approx(300 / 3600)
    costs = [METHODS[name].cost for name in ("fairda", "reweighting")]
    assert second["hours"] == pytest.approx(400 * costs[1] / costs[0] / 3600)
    assert "8 jobs, 1 of them done" in plan(config, 2, tmp_path).in_words
    assert not (tmp_path / "nothing").exists()
    assert plan(config, 1, tmp_path / "nothing").lines["done"].sum() == 0
    assert not (tmp_path / "nothing").exists()


def test_the_papers_preset_has_main_methods_everywhere_and_others_where_most_is_hidden() -> None:
    config = build(ReproduceConfig, preset("paper", "adult"))
    panels = panels_of(config)
    assert (set(config.all_groups), config.seeds) == ({"gender", "race"}, 5)
    seen = {(method, level, trunk) for _, level, _, method, _, trunk in panels}
    for name, method in METHODS.items():
        levels = LEVELS if method.main else ["sparse"]
        expected = {(level, "best") for level in levels}
        expected |= set() if method.ablation else {("sparse", "paper")}
        assert {(level, trunk) for found, level, trunk in seen if found == name} == expected, name
    jobs = {job.key: job.config for job in all_jobs(config)}
    of_trees = [job for job in jobs.values() if job["method"] == "trees_settled"]
    assert len(of_trees) == 2 * 3 * 2 * 5  # no trunk: the same in panels of both
    assert all(job["settings"]["trunk"] is None for job in of_trees)
    trunks = {(job["settings"]["trunk"], job["settings"]["pieces"]) for job in jobs.values()}
    assert trunks == {("boosted", 16), ("mlp", 0), (None, 16)}
    images = build(ReproduceConfig, preset("celeba", "adult"))
    assert (images.dataset, images.seeds, set(images.levels)) == ("celeba", 3, set(LEVELS))
    assert build(ReproduceConfig, preset("celeba", "celeba_cheekbones") | {"dataset": "celeba_cheekbones"})


def test_smoke_preset_runs_every_method(
    adult: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("reproduce", "--preset", "smoke", "--out", tmp_path, "--workers", "2", "--quiet") == 0
    shown = capsys.readouterr()
    assert "failed" not in shown.err
    assert "Fair-SS-VAE" in shown.out
    found = pd.read_csv(tmp_path / "results.csv")
    assert set(found.method) == set(METHODS)
    assert (found.groupby(["method", "seed"]).selected.sum() == 1).all()
    assert found[["error", "disparity", "val_error"]].stack().between(0, 1).all()
    assert len(found[found.method == "fair_ssvae"]) == 2  # weights
    for name in (
        "adult-gender-deo-sparse-default.svg",
        "adult-gender-deo-sparse-default-every.svg",
        "adult-gender-deo-default-hypervolumes.svg",
        "tables.md",
        "recovery.csv",
        "report.html",
    ):
        assert (tmp_path / name).stat().st_size > 1000
    assert json.loads((tmp_path / "config.json").read_text())["environment"]["torch"]


def test_a_grid_goes_on_and_grows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    assert run("reproduce", *small, *FEW, "--out", tmp_path) == 0
    written = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "jobs").glob("*.json")}
    assert len(written) == 4  # three jobs and the version
    assert run("reproduce", *small, *FEW, "--out", tmp_path, "--seeds", "2") == 0
    now = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "jobs").glob("*.json")}
    assert len(now) == 7
    assert all(now[name] == time for name, time in written.items())
    assert set(pd.read_csv(tmp_path / "results.csv").seed) == {0, 1}
    capsys.readouterr()
    # A job that fails is told, and the others are there.
    assert run("reproduce", *small, "--methods", "ss_vae,fairrf_age", "--quiet", "--out", tmp_path) == 0
    shown = capsys.readouterr()
    assert "failed: fairrf_age" in shown.err
    assert "unknown column 'age'" in shown.err
    assert "SS-VAE" in shown.out
    assert "unknown column" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--preset", "quik"], "unknown preset 'quik'"),
        (["--methods", "fairdaa"], "Did you mean 'fairda'"),
        (["--levels", "none"], "unknown level"),
        (["--metrics", "ddp"], "unknown metric"),
        (["--seeds", "0"], "seeds must be at least 1"),
        (["--backend", "slurm"], "unknown backend 'slurm'"),
        (["--workers", "0"], "workers must be at least 1"),
    ],
)
def test_bad_input_is_told_before_any_work(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("reproduce", *arguments, "--out", tmp_path / "out") == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_of_another_version_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "version.json").write_text('{"version": "0.0.1"}')
    assert run("reproduce", "--preset", "smoke", "--quiet", "--out", tmp_path) == 2
    assert "0.0.1" in capsys.readouterr().err


def test_rows_must_be_enough() -> None:
    with pytest.raises(InputError, match="rows must be at least 100"):
        build(ReproduceConfig, {"rows": 20})
