r"""Critics t(ŷ, a, y) of dependence: networks that are trained beside the classifier, never by it.

For a joint distribution P and the product Q of its margins given y, the bounds of the mutual information are

.. math::
    \text{mine, as the paper prints it:}\quad & E_P[t] - E_Q[\exp(t - 1)] \\
    \text{mine, Donsker and Varadhan's:}\quad & E_P[t] - \log E_Q[\exp t] \\
    \text{infonce:}\quad & E_P\big[ t - \log E_{Q(\cdot|\hat y)} \exp t \big]

Both expectations are over P_f and P(y, a|row), not over single draws. Where one side has few values they
are sums over these (:class:`~.dependence.Joint`), with Q over all pairs of rows; else Q pairs each row with a
fixed number of others (:class:`~.dependence.Pairs`). All are 0 at t = 1, where critics start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.options import option
from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.nn.members import Members
from pyro_fairvae.risks.dependence import PARTNERS, TINY, DependenceRisk, Joint, Pairs, View, independent_of

BOUNDS = ("printed", "donsker_varadhan")  # of mine
STEEPEST = 12.0  # |t − 1| stays below it, so that exp t is finite
PURPOSE = 3  # of seeds, beside those of decoders


@dataclass(frozen=True)
class CriticSettings:
    """The critic of a risk of dependence, and how it is trained."""

    critic_rate: float = option(0.01, "learning rate of the critics of mine and infonce")
    critic_steps: int = option(4, "steps of the critics for each step of the classifier")
    critic_hidden: int = option(
        32, "width of the critics' two hidden layers; 0: no network, the best critic in closed form, for "
        "decisions and groups of few values"
    )  # fmt: skip
    critic_bound: str = option(
        "printed", "mine by the f-divergence that the paper prints, or donsker_varadhan's bound"
    )

    def __post_init__(self) -> None:
        choose("critic_bound", self.critic_bound, BOUNDS)
        require(
            0 < self.critic_rate < float("inf"),
            f"critic_rate must be positive and finite, got {self.critic_rate}.",
        )
        require(self.critic_steps >= 1, f"critic_steps must be at least 1, got {self.critic_steps}.")
        require(self.critic_hidden >= 0, f"critic_hidden must not be negative, got {self.critic_hidden}.")


class Critic(nn.Module):
    """t − 1 of one member: a network of (ŷ, a, y), in any order of ŷ and a, whose inputs broadcast."""

    def __init__(self, first: int, second: int, labels: int, hidden: int) -> None:
        super().__init__()
        self.of_first = nn.Linear(first, hidden)
        self.of_second = nn.Linear(second, hidden, bias=False)
        self.of_label = nn.Linear(labels, hidden, bias=False)
        self.inner = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, first: Tensor, second: Tensor, label: Tensor) -> Tensor:
        hidden = nn.functional.elu(self.of_first(first) + self.of_second(second) + self.of_label(label))
        raw = self.out(nn.functional.elu(self.inner(hidden))).squeeze(-1)
        return STEEPEST * (raw / STEEPEST).tanh()


class Critics:
    """One critic for each member, with an optimiser of their own.

    Called with a view, they give the bound of each member, (members, …), with a gradient in the view alone;
    :meth:`learn` raises it over the critics' parameters, with none into the view. Members never mix, and the
    critic of a member starts from the member's seed.

    Parameters
    ----------
    risk : DependenceRisk
        Its kind says which bound.
    view : View
        Any view of the same shape as those to come, of which widths are taken.
    settings : CriticSettings
        Widths, rates and steps.
    seeds : sequence of int
        The seed of each member.

    Examples
    --------
    >>> import torch
    >>> from pyro_fairvae.risks.critics import Critics, CriticSettings
    >>> from pyro_fairvae.risks.dependence import DEPENDENCE, Rows, view_of_rows
    >>> a = torch.linspace(-2, 2, 200).expand(1, -1)
    >>> told = torch.stack([a.sigmoid(), 1 - a.sigmoid()], -1)  # decisions that tell of a number
    >>> view = view_of_rows(Rows(probabilities=told, sensitive=a), given_label=False)
    >>> critics = Critics(DEPENDENCE["mine"], view, CriticSettings(critic_steps=200), seeds=[0])
    >>> critics.learn(view)
    >>> abs(float(critics(view)) - 0.1296) < 0.005  # their mutual information
    True
    """

    def __init__(
        self, risk: DependenceRisk, view: View, settings: CriticSettings, seeds: Sequence[int]
    ) -> None:
        require(
            risk.criticised and settings.critic_hidden > 0,
            f"the risk {risk.name!r} has no critics with critic_hidden={settings.critic_hidden}.",
        )
        widths = (1, 1) if isinstance(view, Pairs) else (view.atoms.shape[-1], view.categories.shape[-1])
        labels = view.weight.shape[-1 if isinstance(view, Pairs) else -2]
        self.kind = settings.critic_bound if risk.kind == "mine" else risk.kind
        self.steps = settings.critic_steps
        self.networks = Members(
            lambda _: Critic(*widths, labels, settings.critic_hidden),
            [derive_seed(seed, PURPOSE) for seed in seeds],
        ).to(view.weight.device, view.weight.dtype)
        self.networks.requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.networks.parameters(), lr=settings.critic_rate, foreach=True)

    def __call__(self, view: View) -> Tensor:
        if isinstance(view, Pairs):
            return self._of_pairs(view)
        return BOUND[self.kind](view, self._of_joint(view))

    def loss(self, view: View) -> Tensor:
        """Minus the bound, (members,), differentiable in the critics alone; draws of a view are averaged."""
        bound = self(type(view)(*(part.detach() for part in view)))
        return -bound.reshape(len(bound), -1).mean(-1)

    def learn(self, view: View) -> None:
        """Take the critics' steps on a view."""
        parameters = list(self.networks.parameters())
        self.networks.requires_grad_(True)
        try:
            with torch.enable_grad():
                for _ in range(self.steps):
                    gradients = torch.autograd.grad(self.loss(view).sum(), parameters)
                    for parameter, gradient in zip(parameters, gradients, strict=True):
                        parameter.grad = gradient
                    self.optimizer.step()
        finally:
            self.networks.requires_grad_(False)
            self.optimizer.zero_grad()

    def state(self) -> dict[str, Any]:
        """Parameters and the optimiser's state, from which :meth:`load_state` goes on bit for bit."""
        return {"networks": self.networks.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.networks.load_state_dict(state["networks"])
        self.optimizer.load_state_dict(state["optimizer"])

    def _of_joint(self, joint: Joint) -> Tensor:
        """t − 1 of every atom, label and category, (members, 1 for draws …, atoms, labels, categories)."""
        labels = torch.eye(joint.weight.shape[-2], dtype=joint.weight.dtype, device=joint.weight.device)
        first = joint.atoms.expand(self.networks.count, -1, -1)[:, :, None, None]
        second = joint.categories.expand(self.networks.count, -1, -1)[:, None, None]
        values: Tensor = self.networks(first, second, labels[:, None], in_dims=(0, 0, None))
        return values.view(len(values), *(1,) * (joint.weight.dim() - 4), *values.shape[1:])

    def _of_pairs(self, pairs: Pairs) -> Tensor:
        """The bound, with Q over pairs of each row and others at even distances."""
        rows = pairs.decided.shape[-1]
        count = min(PARTNERS, rows - 1)
        steps = [round(step * rows / (count + 1)) for step in range(count + 1)]
        partners = torch.stack(
            [pairs.sensitive.roll(step, -1) for step in steps], 1
        )  # (members, 1 + others, rows)
        beside = torch.stack([pairs.weight.roll(step, -2) for step in steps], 1)  # (…, rows, labels)
        size = pairs.weight.shape[-1]
        labels = torch.eye(size, dtype=partners.dtype, device=partners.device)
        first = pairs.decided.expand(self.networks.count, -1)[:, None, :, None, None]
        second = partners.expand(self.networks.count, -1, -1)[..., None, None]
        t: Tensor = self.networks(first, second, labels, in_dims=(0, 0, None))  # (…, rows, labels)
        weight, own = pairs.weight, t[:, 0]
        if self.kind == "infonce":
            log_mean = (t + beside.clamp(min=TINY).log()).logsumexp(1)
            return (weight * (own - log_mean + beside.sum(1).clamp(min=TINY).log())).sum((-2, -1))
        both = weight.unsqueeze(1) * beside[:, 1:]
        label = weight.sum(-2)  # (members, labels)
        share = both / both.sum((1, 2), keepdim=True).clamp(min=TINY)  # P(pair | y)
        mean = (share * t[:, 1:].exp()).sum((1, 2))
        return (weight * own).sum((-2, -1)) - _excess(self.kind, label, mean)


def _excess(kind: str, label: Tensor, mean: Tensor) -> Tensor:
    """The second term of a bound, with t − 1 in place of t, from E_Q[exp(t − 1) | y], (…, labels)."""
    if kind == "printed":
        return (label * (mean - 1)).sum(-1)
    return (label * mean.clamp(min=TINY).log()).sum(-1)


def _of_product(kind: str, joint: Joint, t: Tensor) -> Tensor:
    label = joint.weight.sum((-3, -1))
    mean = (independent_of(joint) * t.exp()).sum((-3, -1)) / label.clamp(min=TINY)
    return (joint.weight * t).sum((-3, -2, -1)) - _excess(kind, label, mean)


def _of_contrast(joint: Joint, t: Tensor) -> Tensor:
    """InfoNCE whose contrast is with every category, at its probability given y: there is no cap at log N."""
    weight = joint.weight
    share = weight.sum(-3, keepdim=True) / weight.sum((-3, -1), keepdim=True).clamp(min=TINY)
    log_mean = (share * t.exp()).sum(-1, keepdim=True).clamp(min=TINY).log()
    return (weight * (t - log_mean)).sum((-3, -2, -1))


BOUND = {
    "printed": lambda joint, t: _of_product("printed", joint, t),
    "donsker_varadhan": lambda joint, t: _of_product("donsker_varadhan", joint, t),
    "infonce": _of_contrast,
}
