"""Runs on a data set whose withholding is recorded: nothing is hidden, a yardstick stands for the truth."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.options import build
from pyro_fairvae.studies.config import DataConfig, TrainConfig, read_options
from pyro_fairvae.studies.deciding import observed_part
from pyro_fairvae.studies.inspecting import InspectConfig, inspect_models
from pyro_fairvae.studies.prior_study import StudyConfig
from pyro_fairvae.studies.recovery import RecoverConfig
from pyro_fairvae.studies.reproduction import ReproduceConfig
from pyro_fairvae.studies.single_run import load_parts
from tests.support.command_line import TINY, run
from tests.support.stop_files import write_stops


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of data, and in it the run of a training."""
    where = tmp_path_factory.mktemp("data")
    write_stops(where / "stops", rows=500)
    given = ["--dataset", "stops", "--proxies", "officer", "--data-dir", where, "--out", where / "run"]
    assert run("train", *TINY, *given) == 0
    return where


def test_rates_of_hidden_groups_are_refused() -> None:
    for name, value in {
        "level": "sparse",
        "alpha": 0.4,
        "beta": 0.4,
        "truth": "flat",
        "misstated": 0.1,
    }.items():
        with pytest.raises(InputError, match=f"{name} cannot be given for stops") as caught:
            build(DataConfig, {"dataset": "stops", name: value})
        assert caught.value.parameters == (name,)
    with pytest.raises(InputError, match="alpha and beta cannot"):
        DataConfig("stops", alpha=0.4, beta=0.2)


def test_defaults_depend_on_whether_withholding_is_real() -> None:
    stops, adult = DataConfig("stops"), DataConfig("adult")
    assert (stops.level, stops.label_missing) == (None, 0.0)
    assert (adult.level, adult.label_missing) == ("sparse", 0.25)
    assert list(stops.truth_by_channel()) == ["y"]
    assert list(adult.truth_by_channel()) == ["a", "y"]
    hidden = DataConfig("stops", label_missing=0.5).truth_by_channel()["y"]
    assert hidden.tolist() == [[0.5, 0, 0.5], [0, 0.5, 0.5]]
    for config in (TrainConfig(stops), TrainConfig(adult)):
        assert build(TrainConfig, json.loads(json.dumps(config.flat()))) == config


def test_proxies_are_columns_of_the_data_set() -> None:
    assert DataConfig("stops", proxies=("officer",)).proxies == ("officer",)
    with pytest.raises(InputError, match=r"unknown proxy of stops 'month'; expected one of officer"):
        DataConfig("stops", proxies=("month",))
    with pytest.raises(InputError, match="adult has no columns that may be proxies"):
        DataConfig("adult", proxies=("officer",))


@pytest.mark.parametrize("study", [RecoverConfig, StudyConfig, ReproduceConfig])
def test_studies_that_hide_groups_refuse_it(study: type) -> None:
    with pytest.raises(InputError, match=r"recorded in stops; choose another data set: adult, .*synthetic"):
        study(dataset="stops")
    with pytest.raises(InputError, match="unknown data set 'stpos'"):
        study(dataset="stpos")


def test_the_yardstick_stands_beside_what_was_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = build(TrainConfig, read_options(folder / "run" / "config.json"))
    table = config.data.table(config.seed, folder)
    parts = load_parts(config, folder)
    assert parts.train.u is not None
    officer = parts.train.u.argmax(-1).numpy()  # which is the yardstick of this data set
    withheld = pd.Series(parts.train.a_obs.numpy() == 4).groupby(officer).mean()
    posterior = json.loads((folder / "run" / "posterior.json").read_text())
    for group, name in enumerate(table.groups):
        rate = posterior["a"][name]["unavailable"]
        assert rate["yardstick"] == pytest.approx(withheld[group])
        assert "truth" not in rate
    assert posterior["y"]["arrest"]["unavailable"]["truth"] == 0
    inspected = inspect_models([folder / "run"], InspectConfig())
    assert inspected.rows("a")["Black"]["unavailable"]["yardstick"] == pytest.approx(withheld[1])
    assert "yardstick" not in inspected.rows("y")["arrest"]["unavailable"]
    assert run("inspect", folder / "run") == 0
    title, *lines = capsys.readouterr().out.splitlines()[1:9]
    assert title.endswith("yardstick")
    assert lines[3].endswith(f"{withheld[1]:.3f}")


def test_a_run_has_a_report_and_decisions(folder: Path) -> None:
    assert run("report", folder / "run") == 0
    assert "Asian" in (folder / "run" / "report.html").read_text()
    assert run("decide", folder / "run", "--data-dir", folder) == 0
    assert len(pd.read_csv(folder / "run" / "decisions-test.csv")) == 80  # a fifth of 400


def test_labelling_test_rows_does_not_read_what_people_stated(folder: Path) -> None:
    config = build(TrainConfig, read_options(folder / "run" / "config.json"))
    parts = load_parts(config, folder)
    seen = observed_part(parts, "test")
    assert torch.equal(seen.a_obs, torch.full_like(seen.a_obs, 4))
    assert torch.equal(seen.y_obs, torch.full_like(seen.y_obs, 2))
    assert (parts.validation.a_obs < 4).any()


def test_imputed_groups_are_scored_where_people_stated_none(folder: Path) -> None:
    results = json.loads((folder / "run" / "results.json").read_text())
    assert list(results["imputation"]) == ["group"]  # every label is known
    assert 0 <= results["imputation"]["group"]["outcome"]["accuracy"] <= 1
