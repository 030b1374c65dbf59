"""What a prior lets withholding depend on: its language, and the settings that take it over."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.channels.priors import channel, withholding_in
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.posterior.channel_draws import prior_draws
from pyro_fairvae.report import dependence_table
from pyro_fairvae.schema.attributes import Attributes
from tests.support.command_line import run

PRIOR = "{preset: truthful, depends_on: [month, label], shrinkage: 0.5}"
SEX = Attributes.single(("f", "m"), "sex")


def test_the_prior_sets_what_settings_would() -> None:
    assert withholding_in(PRIOR) == (("month", "label"), 0.5)
    assert withholding_in("truthful") == ((), None)
    assert withholding_in("{sex: {depends_on: label}, race: mar}") == (("label",), None)
    taken = Settings(prior_a=PRIOR)
    assert (taken.withholding_depends_on, taken.withholding_scale) == (("month", "label"), 0.5)
    same = Settings(prior_a=PRIOR, withholding_depends_on=("month", "label"), withholding_scale=0.5)
    assert same == taken
    assert Settings(prior_a="{depends_on: label}", withholding_scale=2.0).withholding_scale == 2.0
    assert channel("a", SEX, PRIOR) == channel("a", SEX, "truthful")  # at the mean of v


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"prior_a": PRIOR, "withholding_depends_on": ("month",)}, "prior_a says"),
        ({"prior_a": PRIOR, "withholding_scale": 2.0}, "prior_a says 0.5"),
        ({"prior_a": "{preset: truthful, shrinkage: 0.5}"}, "depends_on"),
        ({"prior_a": "{depends_on: [a], shrinkage: -1}"}, "must be positive"),
        ({"prior_a": "{depends_on: [a, a]}"}, "each once"),
        ({"prior_a": "{sex: {depends_on: a}, race: {depends_on: b}}"}, "different depends_on"),
        ({"prior_y": PRIOR}, "put it into prior_a"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Settings(**options)  # type: ignore[arg-type]


def test_what_the_prior_implies() -> None:
    table = dependence_table(prior_draws(channel("a", SEX), draws=40000), ("month",), 0.5).splitlines()
    cells = [float(cell.strip("[],")) for cell in table[2].split()[1:]]
    # The uniform rate at the mean of v, moved by the log-odds: quantiles move along.
    for place, shift in ((0, 0.0), (3, -0.5), (6, 0.5)):
        ends = expit(logit(stats.uniform.ppf([0.05, 0.95])) + shift)
        assert cells[place + 1 : place + 3] == pytest.approx(ends, abs=0.01)
        grid = (np.arange(10000) + 0.5) / 10000
        assert cells[place] == pytest.approx(expit(logit(grid) + shift).mean(), abs=0.01)


def test_priors_show_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("priors", "show", PRIOR, "--values", "f,m") == 0
    assert "may also depend on month, label" in capsys.readouterr().out
    assert run("priors", "show", "truthful", "--values", "f,m") == 0
    assert "depend" not in capsys.readouterr().out
