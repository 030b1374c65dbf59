"""The language of priors, and channels made of it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.options import build
from pyro_fairvae.channels.priors import channel
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.studies.config import DataConfig

GENDER = Attributes.single(("Female", "Male"), "gender")
BOTH = Attributes(("gender", "race"), (("Female", "Male"), ("Other", "White", "Black")))


@pytest.mark.parametrize(
    ("prior", "rows"),
    [
        ("truthful", {"Female": {"Female": 1, "unavailable": 1}, "Male": {"Male": 1, "unavailable": 1}}),
        (
            "paper",
            {
                "Female": {"Female": 0.5, "Male": 0.1, "unavailable": 0.4},
                "Male": {"Female": 0.1, "Male": 0.5, "unavailable": 0.4},
            },
        ),
        ("mar", {"every": {"own": 1, "unavailable": 1}}),
        (
            "{preset: flat, strength: 30}",
            {name: {"Female": 10, "Male": 10, "unavailable": 10} for name in ("Female", "Male")},
        ),
        (
            "{preset: informed, strength: 50, rows: {Female: {unavailable: 0.8}, Male: {Female: 0.1}}}",
            {"Female": {"Female": 10, "unavailable": 40}, "Male": {"Female": 5, "Male": 45}},
        ),
        (
            {"rows": {"every": {"own": 3, "other": 1, "unavailable": 2}}, "strength": 60},
            {
                "Female": {"Female": 30, "Male": 10, "unavailable": 20},
                "Male": {"Female": 10, "Male": 30, "unavailable": 20},
            },
        ),
    ],
)
def test_what_is_written_is_what_is_meant(
    prior: str | dict[str, object], rows: dict[str, dict[str, float]]
) -> None:
    made = channel("a", GENDER, prior)
    found = {row.label: dict(zip(row.outcomes, row.prior, strict=True)) for row in made.rows}
    assert found == {label: pytest.approx(row) for label, row in rows.items()}


@pytest.mark.parametrize("names", [("0", "1"), ("Yes", "No"), ("01", "on")])
def test_a_group_may_be_called_what_yaml_takes_for_something_else(names: tuple[str, str]) -> None:
    made = channel(
        "a", Attributes.single(names), f"{{rows: {{{names[0]}: {{unavailable: 2, {names[0]}: 1}}}}}}"
    )
    assert made.rows[0].prior == (1.0, 2.0)


@pytest.mark.parametrize(
    ("prior", "complaint"),
    [
        ("truthfull", "Did you mean 'truthful'"),
        ("{preset: flat, strength: 0}", "strength .* must be positive, got 0"),
        ("{preset: flat, strength: .nan}", "strength .* must be positive"),
        ("{strenght: 3}", "must be a single prior|a prior is one of|expected one of"),
        ("{preset: flat, strenght: 3}", "Did you mean 'strength'"),
        ("{rows: {Femal: {own: 1, unavailable: 1}}}", "Did you mean 'Female'"),
        ("{rows: {Female: {Mal: 1, unavailable: 1}}}", "Did you mean 'Male'"),
        ("{rows: {Female: {own: 0, unavailable: 0}}}", "every outcome has the mass 0"),
        ("{rows: {Female: {own: -1, unavailable: 2}}}", "must be finite and not negative, got -1"),
        ("{rows: {Female: {own: 1}}}", "fewer than two outcomes"),
        ("{rows: {Female: 3}}", "expected masses by outcome"),
        ("{preset: informed, rows: {Female: {unavailable: 0.5}}}", "needs rows .* and strength"),
        (
            "{preset: informed, strength: 5, rows: {Female: {unavailable: 0.8, Male: 0.4}}}",
            "sum to more than 1",
        ),
        ("{preset: mar, rows: {Female: {own: 1, unavailable: 1}}}", "one row for all groups"),
        ("{race: flat}", "unknown attribute with a prior 'race'"),
        ("{gender: {given: [race]}}", "unknown attribute for gender to depend on 'race'"),
        ("[1, 2]", "a prior is one of"),
        ("{preset: informed, strength: 9, rows: {Female: {unavailable: 0.5}}}", "has no row for Male"),
        (
            "{preset: informed, strength: 9, rows: {every: {own: 0.5, unavailable: 0.3}}}",
            "sum to 0.8; make it 1",
        ),
        ("{given: {a: b}}", "given names the attributes"),
        ("{given: [race, race]}", "each once"),
        ("{rows: {Female: {}}}", "expected masses by outcome"),
        ("{a: [", "not valid YAML"),
    ],
)
def test_bad_priors_say_what_is_wrong(prior: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        channel("a", GENDER, prior)


def test_a_prior_that_forbids_what_the_data_say_names_the_row() -> None:
    made = channel("a", GENDER, "{rows: {every: {Female: 1, unavailable: 1}}}")
    made.check(torch.tensor([0, 2, 0]))
    with pytest.raises(InputError, match="row 2 of the data states 'Male'"):
        made.check(torch.tensor([0, 2, 1]))


def test_settings_take_a_prior_from_a_file() -> None:
    settings = build(Settings, {"prior_a": {"preset": "flat", "strength": 3}})
    assert channel("a", GENDER, settings.prior_a).rows[0].prior == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("given", [False, True])
def test_several_attributes_are_a_product(given: bool) -> None:
    """P(ã | a) of both against the product written out, with gender's row depending on race or not."""
    prior = "{gender: {preset: flat%s}, race: mar}" % (", given: [race]" if given else "")
    made = channel("a", BOTH, prior)
    assert len(made.rows) == (6 if given else 2) + 1
    draws = [torch.distributions.Dirichlet(made.concentration(r)).sample() for r in range(len(made.rows))]
    by_label = {row.label: draw for row, draw in zip(made.rows, draws, strict=True)}
    matrix = made.matrix(draws)
    genders, races = BOTH.values
    groups = list(itertools.product(range(2), range(3)))
    outcomes = list(itertools.product(range(3), range(4)))
    for i, (g, r) in enumerate(groups):
        own = by_label[f"gender: {genders[g]}, {races[r]}" if given else f"gender: {genders[g]}"]
        stated, withheld = by_label["race: every"]
        for o, (said_g, said_r) in enumerate(outcomes):
            of_race = withheld if said_r == 3 else (stated if said_r == r else torch.tensor(0.0))
            torch.testing.assert_close(matrix[i, o], own[said_g] * of_race)


def test_the_truth_is_written_in_the_same_language() -> None:
    truth = """{gender: {preset: informed, strength: 1, given: race,
        rows: {Female: {White: {unavailable: 0.8}, Other: {unavailable: 0.5}}, Male: {unavailable: 0.3}}},
        race: {preset: informed, strength: 1, rows: {every: {unavailable: 0.2}}}}"""
    data = DataConfig(group="gender+race", truth=truth)
    matrix = data.missingness().group_channel()
    assert matrix.shape == (4, 9)
    white_woman = matrix[1].reshape(3, 3)
    assert white_woman == pytest.approx(np.outer([0.2, 0, 0.8], [0, 0.8, 0.2]))
    made = channel("a", data.attributes, "{gender: {given: race}, race: mar}")
    rows = dict(zip((row.label for row in made.rows), made.row_probabilities(matrix), strict=True))
    assert rows["gender: Female, Other"] == pytest.approx([0.5, 0.5])
    assert rows["race: every"] == pytest.approx([0.8, 0.2])
