"""The ladder: what each rung changes, how it runs, and what it says."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.options import build, flatten
from pyro_fairvae.baselines.as_printed import as_printed
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.studies.comparison import hypervolume
from pyro_fairvae.studies.ladder import (
    CHANGES,
    KAPPAS,
    LAST,
    TREES,
    LadderConfig,
    ladder_jobs,
    ladder_table,
    run_rung,
    rungs,
)
from pyro_fairvae.studies.resplits import half_width, holm
from tests.support.command_line import run
from tests.support.comparisons import corrected_p, made_up_results

SMALL = {"dataset": "synthetic", "groups": "group", "rows": 700, "epochs": 2, "batch": 128, "weights": 2}


def flat(**options: object) -> dict[str, object]:
    return flatten(asdict(build(Settings, options)))


def test_every_rung_changes_what_it_says_and_the_last_is_the_default() -> None:
    ladder = rungs()
    settings = {name: flat(**rung.options) for name, rung in ladder.items()}
    names = [name for name in ladder if not name.startswith("kappa_")]
    assert settings[names[0]] == flat(**as_printed())
    changes = {name: set(options) for name, _, options in CHANGES} | {TREES: {"trunk", "imputation"}}
    for before, name in pairwise(names[:-1]):
        different = {key for key, value in settings[name].items() if value != settings[before][key]}
        assert different == changes[name], name
    assert settings[TREES] == settings[LAST] == flat(trunk="boosted")
    assert [ladder[name].settled for name in names] == [False] * (len(names) - 1) + [True]
    for kappa in KAPPAS:
        own = settings[f"kappa_{kappa:g}"]
        assert {key for key in own if own[key] != settings[LAST][key]} == {"elbo_weight"}
        assert own["elbo_weight"] == kappa
    assert TREES not in rungs(images=True)


def test_a_ladder_climbs_goes_on_and_is_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    steps = ["--rungs", "bracket,as_printed", "--workers", "1", "--quiet"]
    out = tmp_path / "ladder"
    assert run("ladder", *words, *steps, "--seeds", "1", "--out", out) == 0
    written = {path.name: path.stat().st_mtime_ns for path in (out / "jobs").glob("*.json")}
    assert len(written) == 3
    assert run("ladder", *words, *steps, "--seeds", "2", "--out", out, "--store", tmp_path / "stored") == 0
    shown = capsys.readouterr().out
    assert "likelihoods over all rows, ∅ included" in shown
    now = {path.name: path.stat().st_mtime_ns for path in (out / "jobs").glob("*.json")}
    assert len(now) == 5
    assert all(now[name] == time for name, time in written.items())
    lines = pd.read_csv(out / "ladder.csv")
    assert list(dict.fromkeys(lines["method"])) == ["as_printed", "bracket"]
    assert set(lines["weight"]) == {0.0, 0.1}
    assert len(pd.read_parquet(tmp_path / "stored" / "results.parquet")) == len(lines)
    assert (out / "ladder.svg").exists()


def test_the_last_rung_settles_decisions_with_trees_in_the_trunk() -> None:
    """A smoke test; what is settled has tests of its own."""
    config = build(LadderConfig, SMALL | {"rungs": "targets", "seeds": 1})
    (job,) = ladder_jobs(config)
    record = run_rung(job.config)
    assert [member["lambda"] for member in record["judged"]["deo"]["members"]] == [0.0, 15.0]
    assert record["overlap"] == pytest.approx(2 / 7)


def test_rungs_are_compared_with_the_one_before() -> None:
    gains = {"bracket": 0.02, "as_printed": 0.0, "targets": 0.03, "kappa_1": 0.01}
    labels = {name: (name, False) for name in gains}
    lines = made_up_results(gains, labels=labels, seeds=4, noise=0.004)
    found = ladder_table(lines).set_index("method")
    assert found.index.tolist() == ["as_printed", "bracket", "targets", "kappa_1"]
    volumes = {
        name: [hypervolume(of[["error", "disparity"]], (0.247, 0.2)) for _, of in own.groupby("seed")]
        for name, own in lines.groupby("method")
    }
    before = {"bracket": "as_printed", "targets": "bracket", "kappa_1": "targets"}
    p = {name: corrected_p(volumes[name], volumes[other]) for name, other in before.items()}
    np.testing.assert_allclose(found["p"][list(p)], holm(list(p.values())))
    assert np.isnan(found["p"]["as_printed"])
    for name, other in before.items():
        difference = np.array(volumes[name]) - np.array(volumes[other])
        assert found["difference"][name] == pytest.approx(difference.mean())
        assert found["difference_half_width"][name] == pytest.approx(half_width(difference))


def test_bad_input_is_told() -> None:
    with pytest.raises(InputError, match="unknown rung 'brackets'"):
        build(LadderConfig, {"rungs": "brackets"})
    with pytest.raises(InputError, match="seeds must be at least 1"):
        build(LadderConfig, {"seeds": 0})
    jobs = ladder_jobs(build(LadderConfig, {"seeds": 5}))
    assert len(jobs) == 2 * 5 * len(rungs())
