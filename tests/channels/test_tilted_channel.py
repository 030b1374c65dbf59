"""Channels whose withholding depends on more than the group."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.channels.priors import channel
from pyro_fairvae.schema.attributes import Attributes

SEX = Attributes.single(("f", "m"), "sex")
TWO = Attributes(("sex", "age"), (("f", "m"), ("young", "mid", "old")))
CHANNELS = [
    (SEX, "truthful"),
    (SEX, "paper"),
    (SEX, "mar"),
    (TWO, "paper"),
    (TWO, {"sex": {"preset": "flat", "given": ["age"]}, "age": "truthful"}),
]


def drawn(made: Channel, members: int = 2) -> Tensor:
    rows = [
        torch.distributions.Dirichlet(made.concentration(r).double()).sample((members,))
        for r in range(len(made.rows))
    ]
    return made.matrix(rows)


@pytest.mark.parametrize("by_value", [False, True])
@pytest.mark.parametrize("by_label", [False, True])
@pytest.mark.parametrize(("attributes", "prior"), CHANNELS, ids=str)
def test_each_attribute_has_its_logit_raised_and_its_other_outcomes_in_proportion(
    attributes: Attributes, prior: str, by_label: bool, by_value: bool
) -> None:
    """Against products over attributes of rows that are tilted one by one."""
    made, rows = channel("a", attributes, prior), 3
    matrix = drawn(made)
    values = made.values if by_value else 1
    tilt = torch.randn(2, rows, *([4] if by_label else []), len(attributes.names), values).double() * 2
    found = made.tilted(matrix, tilt)
    torch.testing.assert_close(found.sum(-1), torch.ones_like(found[..., 0]))
    observed = torch.randint(made.outcomes, (rows,))
    likelihood = made.log_likelihood(matrix, observed, tilt).exp()
    sizes = [len(values) for values in attributes.values]
    for place in product(*map(range, tilt.shape[:-2])):
        for a in range(made.values):
            plain = matrix[place[0], a]
            expected = torch.ones(made.outcomes, dtype=torch.float64)
            for j, t in enumerate(tilt[place].expand(-1, made.values)[:, a].tolist()):
                part = attributes.outcome_parts[:, j]
                of_value = torch.stack(
                    [plain[torch.from_numpy(part == value)].sum() for value in range(sizes[j] + 1)]
                )
                p = of_value[-1].item()
                raised = 0.0 if p == 0 else 1.0 if p == 1 else 1 / (1 + (1 - p) / p * math.exp(-t))
                of_value = torch.cat([of_value[:-1] * (1 - raised) / (1 - p), torch.tensor([raised])])
                expected = expected * of_value[torch.from_numpy(part)]
            torch.testing.assert_close(found[place][a], expected)
            torch.testing.assert_close(likelihood[place][a], expected[observed[place[1]]])


def test_no_tilt_is_the_plain_channel() -> None:
    made = channel("a", TWO, "paper")
    matrix, observed = drawn(made), torch.arange(made.outcomes)
    nothing = torch.zeros(2, made.outcomes, 2, 1, dtype=torch.float64)
    torch.testing.assert_close(made.tilted(matrix, nothing), matrix.unsqueeze(1).expand(2, 12, 6, 12))
    torch.testing.assert_close(
        made.log_likelihood(matrix, observed, nothing), made.log_likelihood(matrix, observed)
    )


@pytest.mark.parametrize("prior", ["truthful", {"rows": {"f": {"own": 1, "other": 1}}}])
def test_far_tilts_stay_finite_with_their_gradients(prior: str) -> None:
    """Also where a row cannot withhold at all, and where it always does."""
    made = channel("a", SEX, prior)
    matrix = torch.tensor([[[0.5, 0.5, 0.0] if prior != "truthful" else [0.0, 0.0, 1.0], [0.0, 0.9, 0.1]]])
    matrix.requires_grad_()
    tilt = torch.tensor([-60.0, 0.0, 60.0]).view(1, 3, 1, 1).requires_grad_()
    for o in range(3):
        log_likelihood = made.log_likelihood(matrix, torch.full((3,), o), tilt)
        possible = log_likelihood.isfinite()
        assert torch.equal(possible[0], (matrix[0, :, o] > 0).expand(3, 2))
        evidence = torch.cat([log_likelihood, torch.zeros(1, 3, 1)], dim=-1).logsumexp(-1).sum()
        for grad in torch.autograd.grad(evidence, (matrix, tilt)):
            assert grad.isfinite().all()
