"""
A Pyro program of your own
==========================

Channels, members and the risk need neither the model nor the guide of this library. Here they stand in the
semi-supervised VAE of Kingma and others (M2), written anew for Pyro: what people state is drawn from
channels, and the fairness risk comes beside the ELBO by :class:`pyro_fairvae.RiskELBO`.
"""

import matplotlib.pyplot as plt
import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, TraceEnum_ELBO
from pyro.ops.indexing import Vindex
from torch import nn
from torch.nn import functional

from pyro_fairvae import Members, Missingness, RiskELBO, channel, evaluate, sample_channel, split, synthetic

ROWS, STEPS = 4000, 250
LAMBDAS, LATENT = torch.tensor([0.0, 2.0]), 2

# %%
# People with a label and a group; of group 0 three in ten do not state it, of group 1 seven in ten.

parts = split(synthetic(ROWS, seed=0, class_strength=1.5), Missingness(unavailable=(0.3, 0.7)), seed=0)
train, test = parts.train, parts.test
data = train.x.float(), train.y_obs, train.a_obs
channel_y, channel_a = channel("y", train.label_attributes), channel("a", train.group_attributes)

# %%
# The networks have a copy for each λ, side by side.


def network(inputs, outputs):
    layers = nn.Linear(inputs, 32), nn.Softplus(), nn.Linear(32, outputs)
    return Members(lambda k: nn.Sequential(*layers), seeds=[0] * len(LAMBDAS))


columns = train.x.shape[-1]
pyro.set_rng_seed(0)
encoder, decoder = network(columns, 2 * LATENT), network(LATENT + 4, columns)
classifier, grouper = network(columns, 2), network(columns, 2)

# %%
# The model is M2 with two channels, and with its classification term, the likelihood of what is stated
# given x. The guide believes what is stated: q(y|x,ỹ) ∝ g(y|x) P(ỹ|y), and so for a.


def believed(x, y_obs, a_obs, of_y, of_a):
    """log g(y|x) P(ỹ|y) and log h(a|x) P(ã|a), (members, rows, 2) each."""
    log_g, log_h = (part(x, in_dims=(None,)).log_softmax(-1) for part in (classifier, grouper))
    said_y = channel_y.log_likelihood(of_y.squeeze(-3), y_obs)
    return log_g + said_y, log_h + channel_a.log_likelihood(of_a.squeeze(-3), a_obs)


def model(x, y_obs, a_obs):
    for name, part in (("decoder", decoder), ("classifier", classifier), ("grouper", grouper)):
        pyro.module(name, part)
    with pyro.plate("members", len(LAMBDAS), dim=-2):
        of_y, of_a = sample_channel(channel_y), sample_channel(channel_a)
        with pyro.plate("rows", len(x), dim=-1):
            stated = believed(x, y_obs, a_obs, of_y, of_a)
            pyro.factor("stated", sum(joint.logsumexp(-1) for joint in stated))
            z = pyro.sample("z", dist.Normal(0, torch.ones(LATENT)).to_event(1))
            y, a = (pyro.sample(name, dist.Categorical(torch.ones(2))) for name in "ya")
            pyro.sample("y_obs", dist.Categorical(Vindex(of_y)[..., y, :]), obs=y_obs)
            pyro.sample("a_obs", dist.Categorical(Vindex(of_a)[..., a, :]), obs=a_obs)
            known = [z, functional.one_hot(y, 2), functional.one_hot(a, 2)]
            shape = torch.broadcast_shapes(*(part.shape[:-1] for part in known))
            inputs = torch.cat([part.expand(*shape, -1) for part in known], dim=-1)
            pyro.sample("x", dist.Normal(decoder(inputs, in_dims=(-3,), out_dims=-3), 1).to_event(1), obs=x)


def posterior(site):
    start = torch.full((len(LAMBDAS), 1, 2), 50.0)
    return dist.Dirichlet(pyro.param(f"q_{site}", start, dist.constraints.positive))


def guide(x, y_obs, a_obs):
    pyro.module("encoder", encoder)
    with pyro.plate("members", len(LAMBDAS), dim=-2):
        channels = sample_channel(channel_y, posterior), sample_channel(channel_a, posterior)
        q_y, q_a = (joint.softmax(-1) for joint in believed(x, y_obs, a_obs, *channels))
        with pyro.plate("rows", len(x), dim=-1):
            loc, log_scale = encoder(x, in_dims=(None,)).chunk(2, dim=-1)
            pyro.sample("z", dist.Normal(loc, log_scale.exp()).to_event(1))
            pyro.sample("y", dist.Categorical(q_y), infer={"enumerate": "parallel"})
            pyro.sample("a", dist.Categorical(q_a), infer={"enumerate": "parallel"})


# %%
# The risk needs the classifier's logits, and P(y, a) of each row as far as it is known.


def judge(x, y_obs, a_obs):
    channels = mean(channel_y), mean(channel_a)
    q_y, q_a = (joint.softmax(-1) for joint in believed(x, y_obs, a_obs, *channels))
    return classifier(x, in_dims=(None,)), q_y.unsqueeze(-1) * q_a.unsqueeze(-2)


def mean(of):
    return of.matrix([posterior(site).mean for site in of.sites])


pyro.clear_param_store()
loss = RiskELBO(TraceEnum_ELBO(max_plate_nesting=2), judge, weight=LAMBDAS, rows=train.rows)
svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.01}), loss)
losses = [svi.step(*data) for _ in range(STEPS)]

# %%
# Who withholds, and how fair decisions about new people are.

withheld = mean(channel_a)[:, 0, :, 2].detach()
decisions = classifier(torch.as_tensor(test.x).float(), in_dims=(None,)).argmax(-1)
judged = [evaluate(test.y, decided.numpy(), test.a, 2) for decided in decisions]
found = pd.DataFrame({"λ": LAMBDAS, "P(∅|0)": withheld[:, 0], "P(∅|1)": withheld[:, 1]})
found[["error", "deo"]] = [[each["error"], each["deo"]] for each in judged]
print(found.round(3))

figure, axes = plt.subplots(figsize=(5, 3))
axes.plot(losses)
axes.set(xlabel="step", ylabel="loss of both members")
