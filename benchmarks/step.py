"""The cost of a training step, for 1, 4 and 8 members, beside a hand-written PyTorch loop.

    python benchmarks/step.py [--rows 1024] [--rounds 15] [--threads 2]

The loop trains one member: the same networks, likelihoods, KLs, imputers, risk with memory, clipping
and AdamW, written out without Pyro and without a dimension of members; its ELBO is over as many rows, and its
decoder runs at every (y, a) of each. Values are withheld as at the paper's sparse level. All are timed in
turns in one process; the figures are medians over rounds, and the ratio is the result.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import pyro
import torch
from pyro.infer import SVI
from torch import Tensor, nn
from torch.distributions import Dirichlet, kl_divergence
from torch.nn import functional

from pyro_fairvae.data.missingness import LEVELS
from pyro_fairvae.data.possible_pairs import PairsOfRows
from pyro_fairvae.inference.objective import FairELBO
from pyro_fairvae.inference.optimizer import MembersAdamW
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.risks import RiskLoss
from pyro_fairvae.schema.observed import Batch, Columns, Observed

COLUMNS = Columns(5, (7, 16, 7, 14, 6, 41, 2))  # those of Adult
TABLE_ROWS = 31_655
LABEL_WITHHELD = (0.25, 0.25)


class HandWritten(nn.Module):
    """One member for two classes and two groups, truthful channels and a joint p(a, y)."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width, hidden, latent = COLUMNS.width, settings.hidden, settings.latent
        self.edges = torch.linspace(-2, 2, settings.pieces + 1)
        layers = [nn.Linear(width + COLUMNS.numbers * settings.pieces, hidden), nn.ReLU()]
        for _ in range(settings.layers - 1):
            layers += [nn.Linear(hidden, hidden), nn.ReLU()]
        self.trunk = nn.Sequential(*layers)
        self.loc, self.scale = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.g, self.h = nn.Linear(hidden, 2), nn.Linear(hidden, 2)
        self.label, self.group_by_label = nn.Linear(hidden, 2), nn.Linear(4, 4)
        self.from_z = nn.Linear(latent, settings.decoder_hidden)
        self.from_a = nn.Embedding(2, settings.decoder_hidden)
        self.from_y = nn.Embedding(2, settings.decoder_hidden)
        self.out = nn.Linear(settings.decoder_hidden, width)
        self.log_scale = nn.Parameter(torch.zeros(COLUMNS.numbers))
        self.channel_a = nn.Parameter(torch.full((2, 2), 8.0))
        self.channel_y = nn.Parameter(torch.full((2, 2), 8.0))
        self.pi = nn.Parameter(torch.full((4,), 8.0))
        self.settings = settings
        self.memory = RiskLoss(settings.fairness).estimator.memory
        self.remembered: Tensor | None = None

    def channel(self, raw: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        """log P(observed | latent), (rows, 2), of a draw, and the KL to a flat prior."""
        posterior = Dirichlet(raw.exp(), validate_args=False)
        rates = posterior.rsample()
        log_likelihood = torch.full((len(observed), 2), -torch.inf)
        for value in range(2):
            log_likelihood[:, value] = torch.where(
                observed == value,
                rates[value, 0].log(),
                torch.where(observed == 2, rates[value, 1].log(), -torch.inf),
            )
        prior = Dirichlet(torch.ones(2, 2), validate_args=False)
        return log_likelihood, kl_divergence(posterior, prior).sum()

    def loss(self, batch: Batch, weight: float) -> Tensor:
        x, rows = batch.x, len(batch.x)
        kappa, s = self.settings.objective_weights.kappa, self.settings.objective_weights.s
        pieces = ((x[:, : COLUMNS.numbers, None] - self.edges[:-1]) / self.edges.diff()).clamp(0, 1)
        features = self.trunk(torch.cat([x, pieces.flatten(1)], -1))
        log_a, kl_a = self.channel(self.channel_a, batch.a_obs)
        log_y, kl_y = self.channel(self.channel_y, batch.y_obs)
        pi = Dirichlet(self.pi.exp(), validate_args=False)
        log_pi = pi.rsample().log().view(2, 2)
        kl_pi = kl_divergence(pi, Dirichlet(torch.ones(4), validate_args=False))
        class_logits = self.g(features)
        log_h, log_g = self.h(features).log_softmax(-1), class_logits.log_softmax(-1)
        joint_a, joint_y = log_h + log_a, log_g + log_y
        q_a, q_y = joint_a.softmax(-1), joint_y.softmax(-1)
        seen = self.settings.objective_weights.elbo_rows(rows)  # by the ELBO, as the method does it
        drawn = features[:seen]
        loc, scale = self.loc(drawn), functional.softplus(self.scale(drawn)) + 1e-3
        z = loc + scale * torch.randn_like(loc)
        inner = self.from_z(z) + self.from_a.weight.view(2, 1, 1, -1) + self.from_y.weight.view(1, 2, 1, -1)
        out = self.out(torch.relu(inner))  # (groups, classes, rows, columns)
        numbers, *blocks = out.split([COLUMNS.numbers, *COLUMNS.blocks], -1)
        values, *chosen = x[:seen].split([COLUMNS.numbers, *COLUMNS.blocks], -1)
        normal = torch.distributions.Normal(numbers, self.log_scale.exp(), validate_args=False)
        log_x = normal.log_prob(values).sum(-1)
        for block, one_hot in zip(blocks, chosen, strict=True):
            target = one_hot.argmax(-1).expand(2, 2, seen).reshape(-1)
            surprise = functional.cross_entropy(block.flatten(0, -2), target, reduction="none")
            log_x = log_x - surprise.view_as(log_x)
        q_a, q_y = q_a[:seen], q_y[:seen]
        both = q_a.T.unsqueeze(1) * q_y.T
        finite_a, finite_y = log_a[:seen].clamp(min=-30), log_y[:seen].clamp(min=-30)
        entropy = -(q_a * q_a.clamp(min=1e-7).log()).sum() - (q_y * q_y.clamp(min=1e-7).log()).sum()
        elbo = (
            (both * (log_x + log_pi.T.unsqueeze(-1))).sum() + (q_a * finite_a).sum() + (q_y * finite_y).sum()
            + entropy - (0.5 * (scale**2 + loc**2 - 1) - scale.log()).sum()
        )  # fmt: skip
        evidence = joint_a.logsumexp(-1).mean() + joint_y.logsumexp(-1).mean()
        scores = torch.cat([log_h, log_g], -1).detach().clamp(min=-8)
        by_label = self.group_by_label(scores).view(rows, 2, 2).log_softmax(-1) + log_a.detach().unsqueeze(1)
        imputer = (self.label(features.detach()).log_softmax(-1) + log_y.detach()).unsqueeze(-1) + by_label
        kl = (kappa + s) * (kl_a + kl_y) + kappa * kl_pi
        likelihoods = kappa * elbo / seen + s * evidence + imputer.flatten(1).logsumexp(-1).mean()
        p = (class_logits / self.settings.fairness.temperature).softmax(-1)
        label = (self.label(features).log_softmax(-1) + log_y).detach().softmax(-1)
        decisions = self.settings.objective_weights.omega * (1 - (p * label).sum(-1).mean())
        return kl / TABLE_ROWS - likelihoods + decisions + self.risk(p, imputer.detach(), weight)

    def risk(self, p: Tensor, log_imputed: Tensor, weight: float) -> Tensor:
        now = log_imputed.flatten(1).softmax(-1).T @ torch.cat([torch.ones(len(p), 1), p], -1)  # (cells, 3)
        before = now.detach() if self.remembered is None else self.remembered
        self.remembered = torch.lerp(before, now.detach(), self.memory)
        sums = (before + now - now.detach()).view(2, 2, 3)
        rates = torch.stack([sums[0, :, 1], sums[1, :, 2]]) / sums[..., 0].detach().clamp(min=1e-6)
        gaps = rates[:, 1] - rates[:, 0]
        pull = (self.settings.fairness.stiffness * gaps).detach()
        size = pull.abs()
        level = torch.maximum((size.sum() - weight) / 2, size.max() - weight).clamp(min=0)
        return (pull.sign() * (size - level).clamp(min=0) * gaps).sum()


def hand_written_step(settings: Settings, batch: Batch) -> Callable[[], object]:
    torch.manual_seed(0)
    network = HandWritten(settings)
    sites = [network.channel_a, network.channel_y, network.pi]
    others = [p for p in network.parameters() if not any(p is site for site in sites)]
    groups = [
        {"params": others, "lr": settings.lr, "weight_decay": settings.weight_decay},
        {"params": sites, "lr": settings.sites_lr, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, foreach=True)

    def step() -> object:
        loss = network.loss(batch, 1.0)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), settings.clip)
        optimizer.step()
        return loss.item()

    return step


def members_step(members: int, settings: Settings, batch: Batch, table: Observed) -> Callable[[], object]:
    program = Program(table, settings, [0] * members)
    pairs = PairsOfRows(table, program.model.channel_a, program.model.channel_y)
    (possible,) = pairs.of([torch.arange(batch.rows)], settings.objective_weights.elbo_rows)
    batch = replace(batch, possible=possible)
    objective = FairELBO(
        TABLE_ROWS, torch.ones(members), RiskLoss(settings.fairness), settings.objective_weights
    )
    optimizer = MembersAdamW(
        settings.lr, settings.sites_lr, settings.weight_decay, settings.clip, program.site_parameters
    )
    svi = SVI(program.model, program.guide, optimizer, objective)
    store = pyro.get_param_store()
    saved = [store.get_state()]

    def step() -> object:
        with store.scope(saved[0]) as scope:
            loss = svi.step(batch)
        saved[0] = scope
        return loss

    return step


def random_table(rows: int) -> Observed:
    torch.manual_seed(0)
    blocks = [torch.eye(size)[torch.randint(size, (rows,))] for size in COLUMNS.blocks]
    x = torch.cat([torch.randn(rows, COLUMNS.numbers), *blocks], dim=-1)
    a, y = torch.randint(2, (rows,)), torch.randint(2, (rows,))
    said = [
        torch.where(torch.rand(rows) < torch.tensor(withheld)[of], 2, of)
        for of, withheld in ((y, LABEL_WITHHELD), (a, LEVELS["sparse"]))
    ]
    return Observed(x, *said, COLUMNS, 2, 2)


def matrix_product_peak() -> float:
    """Operations a second in products of square matrices, of this process and now."""
    left, right = torch.randn(2, 1024, 1024)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        left @ right
        times.append(time.perf_counter() - start)
    return float(2 * 1024**3 / statistics.median(times))


def products_of_a_step(settings: Settings, rows: int) -> float:
    """Operations in the large matrix products of the loop's step, forward and backward.

    The first layer of the encoder needs no gradient of its inputs.
    """
    inputs = COLUMNS.width + COLUMNS.numbers * settings.pieces
    first, others = inputs * settings.hidden, (settings.layers - 1) * settings.hidden**2
    heads = settings.hidden * (2 * settings.latent + 6)
    decoded = settings.objective_weights.elbo_rows(rows)
    decoder = settings.decoder_hidden * (settings.latent + 4 * COLUMNS.width)
    return 2.0 * (rows * (2 * first + 3 * (others + heads)) + decoded * 3 * decoder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1024, help="rows in a step")
    parser.add_argument("--rounds", type=int, default=15, help="how often each is timed")
    parser.add_argument("--threads", type=int, help="CPU threads (default: all cores)")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    pyro.enable_validation(False)
    settings = Settings()
    table = random_table(arguments.rows)
    batch = table.batch(torch.arange(arguments.rows))
    steps = {"hand-written, 1 member": (1, hand_written_step(settings, batch))}
    steps |= {f"SVI, {k} member(s)": (k, members_step(k, settings, batch, table)) for k in (1, 4, 8)}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(arguments.rounds + 3):
        for name, (members, step) in steps.items():
            start = time.perf_counter()
            for _ in range(max(1, 8 // members)):
                step()
            if number >= 3:  # the first rounds warm up
                times[name].append((time.perf_counter() - start) / max(1, 8 // members) / members)
    peak, operations = matrix_product_peak(), products_of_a_step(settings, arguments.rows)
    base = statistics.median(times["hand-written, 1 member"])
    print(f"{arguments.rows} rows, {torch.get_num_threads()} threads, median of {arguments.rounds} rounds")
    for name, seconds in times.items():
        cost = statistics.median(seconds)
        print(
            f"{name:24s} {1e3 * cost:7.2f} ms a member and step   {cost / base:5.2f} x hand-written   "
            f"{operations / cost / peak:5.1%} of the peak of matrix products"
        )


if __name__ == "__main__":
    main()
