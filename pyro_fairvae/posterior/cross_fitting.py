"""h(a|x) and g(y|x) of every row, from networks that were not trained on the row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pyro_fairvae.base.devices import fixed_order
from pyro_fairvae.base.ranks import current
from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.data.augmentation import altered
from pyro_fairvae.data.coded_columns import StatedGroups
from pyro_fairvae.guides.factored import mean_over_labels
from pyro_fairvae.inference.minimising import minimise
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.nn.conditions import Conditions
from pyro_fairvae.nn.encoder import ProxyLogits
from pyro_fairvae.nn.members import Members, evaluating
from pyro_fairvae.nn.trunks import trunks
from pyro_fairvae.schema.image_rows import Pixels
from pyro_fairvae.schema.observed import Batch, Observed, rows_at_once

# A few epochs are enough for tables.
TABLE_EPOCHS = 8
LR = 5e-3
TABLE_REPEATS = 3  # splits into folds, over which scores are averaged
SPLIT_ONCE = 50_000  # rows from which one split is enough: chance in scores falls with rows
BATCH = 512  # at most
LEAST_STEPS = 32  # in an epoch, at least


@dataclass(frozen=True)
class CrossFitted:
    """Scores of rows, each from networks trained on other folds; one table, or one for each member."""

    groups: Tensor  # h(a|x), (tables, rows, groups)
    labels: Tensor  # g(y|x), (tables, rows, classes)


class Heads(nn.Module):
    """A trunk, h, to which proxies u add if there are any, and g.

    Their intercepts start at the log shares of groups and labels: a small group is otherwise learned last.
    """

    def __init__(
        self, trunk: nn.Module, features: int, group_shares: Tensor, label_shares: Tensor, proxies: int = 0
    ) -> None:
        super().__init__()
        groups = len(group_shares)
        self.trunk = trunk
        self.group = nn.Linear(features, groups)
        self.label = nn.Linear(features, len(label_shares))
        with torch.no_grad():
            self.group.bias.copy_(group_shares.log())
            self.label.bias.copy_(label_shares.log())
        if proxies:
            self.from_u = ProxyLogits(proxies, groups)

    def forward(self, x: Tensor, u: Tensor | None = None) -> tuple[Tensor, Tensor]:
        features = self.trunk(x)
        groups = self.group(features)
        return groups if u is None else groups + self.from_u(u), self.label(features)


def cross_fit(
    train: Observed,
    channels: tuple[Channel, Channel],
    settings: Settings,
    seeds: Sequence[int],
    folds: int = 4,
    epochs: int | None = None,
    conditions: Conditions | None = None,
) -> CrossFitted:
    r"""Train a network for each fold, on the rows outside it, and score the rows inside it.

    Tables that are not large are split more than once, and log scores are averaged, so that less of a score
    is chance.

    Each network maximises the mean of
    :math:`\log \sum_a h(a|x) P(\tilde a|a) + \log \sum_y g(y|x) P(\tilde y|y)`, with channels that the
    networks of a table share and that are discarded afterwards: learned in each fold alone, they would shift
    its scores against those of the others. With ``conditions`` v, which has a member for each table, P(ã|a)
    is P(ã|a,v) with coefficients w, and with proxies u in ``train``, h is h(a|x,u). All networks are trained
    at once: those of all folds and, where members have separate rows, of all tables. ``seeds`` has one for
    each table. Processes that are :func:`~pyro_fairvae.base.ranks.joined` take their parts of each batch, and
    of the rows to score. A few epochs are too few for images, which therefore use the epochs, batch size and
    learning rate of the fit itself, and one split.
    """
    images = isinstance(train.columns, Pixels)
    if epochs is None:
        epochs = settings.epochs if images else TABLE_EPOCHS
    lr, most = (settings.lr, settings.batch) if images else (LR, BATCH)
    device, tables, rows = train.x.device, len(seeds), train.rows
    repeats = 1 if images or rows >= SPLIT_ONCE else TABLE_REPEATS
    # One row of folds for each split of each table.
    fold = torch.stack([_folds(rows, folds, seed, repeat) for seed in seeds for repeat in range(repeats)])
    fold = fold.to(device)
    # The table whose rows a network is trained on, and the split whose fold it is for.
    owner = [t for t in range(tables) for _ in range(repeats * folds)]
    split = [r for _ in range(tables) for r in range(repeats) for _ in range(folds)]
    trunk = trunks(train, settings)
    proxies = 0 if train.u_columns is None else train.u_columns.width
    groups, labels = _stated_shares(train, tables)
    networks = Members(
        lambda k: Heads(trunk(owner[k]), settings.hidden, groups[owner[k]], labels[owner[k]], proxies),
        [derive_seed(seeds[t], 4, r) for t, r in zip(owner, split, strict=True)],
    ).to(device, train.x.dtype)
    networks.mixed = settings.mixed(train.columns, device)
    sites = nn.ParameterList(
        channel.concentration(row, train.like).log().expand(tables, -1).clone()
        for channel in channels
        for row in range(len(channel.rows))
    ).to(device)
    withholding = None
    if conditions is not None:
        shape = (tables, len(channels[0].attributes.names), conditions.width)
        withholding = Withholding(
            conditions.take(owner),
            train.like.new_zeros(shape),
            settings.withholding_scale,
            rows,
            repeats * folds,
        )
    named = dict(networks.named_parameters())
    decayed = [param for name, param in named.items() if name not in networks.norms]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "lr": lr},
            {"params": [named[name] for name in networks.norms], "lr": lr, "weight_decay": 0.0},
            {
                "params": [*sites, *([] if withholding is None else [withholding.effects])],
                "lr": settings.sites_lr,
                "weight_decay": 0.0,
            },
        ],
        weight_decay=settings.weight_decay,
        foreach=True,
    )
    outside = [torch.nonzero(of != f).squeeze(-1) for of in fold for f in range(folds)]
    shortest = min(len(index) for index in outside)
    steps = min(shortest, max(LEAST_STEPS, round(shortest / most)))
    draw = np.random.default_rng([derive_seed(seeds[0], 5)])
    ranks = current().for_rows(shortest // steps)

    def batches(_: int) -> tuple[Tensor, ...]:
        order = torch.stack([index[torch.from_numpy(draw.permutation(len(index))[:shortest]).to(device)]
                             for index in outside])  # fmt: skip
        return order.tensor_split(steps, dim=-1)

    def loss(index: Tensor, _: float) -> Tensor:
        drawn = index.shape[-1]
        batch = _rows_of(train, owner, ranks.part(index))
        x = altered(batch.x, train.columns, settings.augmentation, ranks, drawn if ranks.count > 1 else None)
        batch = replace(batch, x=x)
        evidence = batch.mean(_evidence(networks, sites, channels, batch, withholding))
        evidence = evidence * (batch.rows / drawn)
        return -evidence if withholding is None else withholding.penalty() / ranks.count - evidence

    with fixed_order():
        minimise(optimizer, loss, batches, epochs, lambda epoch: derive_seed(seeds[0], 8, epoch), ranks=ranks)
    scored = [
        _score(networks, train, fold, owner, folds, chunk)
        for chunk in ranks.part(torch.arange(rows, device=device)).split(rows_at_once(train.x))
    ]
    return CrossFitted(
        *(ranks.whole(torch.cat(chunks, dim=1), rows, dim=1) for chunks in zip(*scored, strict=True))
    )


def _folds(rows: int, folds: int, seed: int, repeat: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng([derive_seed(seed, 6, repeat)]).permutation(rows) % folds)


def _stated_shares(train: Observed, tables: int) -> list[Tensor]:
    """Shares of groups and of labels among rows that state them, each (tables, values)."""
    groups = StatedGroups(train.a_obs.flatten().cpu().numpy(), train.group_attributes).codes
    shares = []
    for codes, values in ((torch.from_numpy(groups), train.groups), (train.y_obs.cpu(), train.classes)):
        of_tables = codes.reshape(-1, 1, train.rows).expand(tables, -1, -1)
        counts = 1.0 + (of_tables == torch.arange(values).unsqueeze(-1)).sum(-1)
        shares.append(counts / counts.sum(-1, keepdim=True))
    return shares


def _rows_of(train: Observed, owner: list[int], index: Tensor) -> Batch:
    """Rows (networks, rows) of the tables that the networks belong to."""
    key: Any = index
    if train.members is not None:
        key = torch.tensor(owner, device=index.device).unsqueeze(-1), index
    return Batch(
        train.x[key],
        train.y_obs[key],
        train.a_obs[key],
        None if train.u is None else train.u[key],
        weight=None if train.weight is None else train.weight[key],
    )


class Withholding:
    """w of each table, (tables, attributes, columns of v), with its prior."""

    def __init__(self, conditions: Conditions, start: Tensor, scale: float, rows: int, networks: int) -> None:
        self.conditions, self.scale, self.rows, self.networks = conditions, scale, rows, networks
        self.effects = nn.Parameter(start)

    def tilt(self, x: Tensor) -> Tensor:
        """t = w·v of rows, (networks, rows, …, attributes)."""
        effects = self.effects.repeat_interleave(self.networks, dim=0)
        return self.conditions.tilt(self.conditions.features(x), effects)

    def penalty(self) -> Tensor:
        """−log p(w) for each row of training, (networks,)."""
        each = (self.effects**2).sum((-1, -2)) / (2 * self.scale**2 * self.rows)
        return each.repeat_interleave(self.networks)


def _evidence(
    networks: Members,
    sites: nn.ParameterList,
    channels: tuple[Channel, Channel],
    batch: Batch,
    withholding: Withholding | None,
) -> Tensor:
    """log P(ã|x) + log P(ỹ|x), (networks, rows)."""
    groups, labels = _heads(networks, batch)
    matrices, first = [], 0
    for channel in channels:
        rows = [site.softmax(-1) for site in sites[first : first + len(channel.rows)]]
        first += len(channel.rows)
        matrix = channel.matrix(rows)  # of tables
        matrices.append(matrix.repeat_interleave(len(labels) // len(matrix), dim=0))
    log_joint_y = labels.log_softmax(-1) + channels[1].log_likelihood(matrices[1], batch.y_obs)
    tilt = None if withholding is None else withholding.tilt(batch.x)
    log_channel = channels[0].log_likelihood(matrices[0], batch.a_obs, tilt)
    if log_channel.dim() == 4:  # P(ã|a,v,y)
        log_channel = mean_over_labels(log_channel, log_joint_y.log_softmax(-1).detach())
    evidence: Tensor = (groups.log_softmax(-1) + log_channel).logsumexp(-1) + log_joint_y.logsumexp(-1)
    return evidence


def _heads(networks: Members, batch: Batch) -> tuple[Tensor, Tensor]:
    """Logits of h and g of each network's rows."""
    inputs = (batch.x,) if batch.u is None else (batch.x, batch.u)
    groups, labels = networks(*inputs, in_dims=(0,) * len(inputs))
    return groups, labels


def _score(
    networks: Members, train: Observed, fold: Tensor, owner: list[int], folds: int, rows: Tensor
) -> tuple[Tensor, ...]:
    """h and g of ``rows``, each by the networks of its folds, (tables, rows, …)."""
    batch = _rows_of(train, owner, rows.expand(len(owner), -1))
    chosen = fold[:, None, rows, None]  # (splits, 1, rows, 1)
    with evaluating(networks):
        scored = _heads(networks, batch)
    return tuple(
        logits.log_softmax(-1)
        .unflatten(0, (-1, folds))
        .gather(1, chosen.expand(-1, -1, -1, logits.shape[-1]))
        .unflatten(0, (owner[-1] + 1, -1))
        .mean((1, 2))
        .softmax(-1)
        for logits in scored
    )
