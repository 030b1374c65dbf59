"""Fair classification when group membership is withheld, and who withholds it is to be learned.

The public interface is what ``pyro_fairvae.__all__`` lists, imported from here:

>>> from pyro_fairvae import FairSSVAEClassifier, audit

Tables of one's own
    :class:`FairSSVAEClassifier` (scikit-learn's interface; ``FairSSVAEClassifier.load`` opens a saved model
    folder), :class:`FairSSVAERegressor` (outcomes that are numbers), :class:`FairDecisions` (any classifier,
    settled to targets), :func:`audit` and its result :class:`Audit`, :func:`monitor` (audits of one period
    after another, and a test for change).
Folders of ``fairvae train`` and ``fairvae fit``
    :func:`load` opens one as a :class:`StoredModel`, and trains nothing.
Research
    :func:`load_dataset`, :func:`synthetic`, :class:`Missingness`, :func:`split`, :class:`Splits`,
    :class:`Observed`; :func:`fit`, :class:`Fit`, :class:`Settings`, :class:`RiskSettings`; :data:`RISKS` (the
    fairness risks by name), :func:`register_risk`, :func:`samples_for`; :func:`evaluate`,
    :func:`evaluate_members`; :data:`METHODS` (the methods that are compared, by name).
Who withholds
    :class:`Attributes`, :class:`Channel`, :func:`channel` (P(ã|a) with a prior), :func:`calibrate_fit`,
    :func:`guide_draws`, :func:`prior_draws`, :class:`ChannelDraws`, :func:`summarise`.
Pyro programs of one's own
    :func:`channel` and :func:`sample_channel` (channels as sites of any model and guide), :class:`RiskELBO`
    (the fairness risk beside any ELBO), :class:`Members` (many networks as one).
Errors
    :class:`InputError`, a ``ValueError``: what was given cannot be used.

Everything else is internal. The packages below this one can be imported, but their modules, names and
signatures may change in any release.

Names are imported when they are first used, so that ``import pyro_fairvae`` costs nothing, and plotting,
image and cluster libraries are loaded by what needs them alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyro_fairvae.auditing.auditing import audit
    from pyro_fairvae.auditing.monitoring import monitor
    from pyro_fairvae.auditing.result import Audit
    from pyro_fairvae.base.errors import InputError
    from pyro_fairvae.baselines import METHODS
    from pyro_fairvae.channels.channel import Channel
    from pyro_fairvae.channels.priors import channel
    from pyro_fairvae.data import Missingness, Splits, split, synthetic
    from pyro_fairvae.data import load as load_dataset
    from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
    from pyro_fairvae.estimator.fair_decisions import FairDecisions
    from pyro_fairvae.estimator.regressor import FairSSVAERegressor
    from pyro_fairvae.evaluation.members import evaluate_members
    from pyro_fairvae.evaluation.metrics import evaluate
    from pyro_fairvae.inference.fit_result import Fit
    from pyro_fairvae.inference.risk_elbo import RiskELBO
    from pyro_fairvae.inference.settings import Settings
    from pyro_fairvae.inference.training import fit
    from pyro_fairvae.models.channel_sites import sample_channel
    from pyro_fairvae.nn.members import Members
    from pyro_fairvae.posterior.calibration import calibrate_fit
    from pyro_fairvae.posterior.channel_draws import ChannelDraws, guide_draws, prior_draws
    from pyro_fairvae.posterior.summaries import summarise
    from pyro_fairvae.risks import RISKS, RiskSettings, samples_for
    from pyro_fairvae.risks import register as register_risk
    from pyro_fairvae.schema.attributes import Attributes
    from pyro_fairvae.schema.observed import Observed
    from pyro_fairvae.storage.stored_model import StoredModel
    from pyro_fairvae.storage.stored_model import load_model as load

__version__ = "0.2.0"

__all__ = [
    "METHODS",
    "RISKS",
    "Attributes",
    "Audit",
    "Channel",
    "ChannelDraws",
    "FairDecisions",
    "FairSSVAEClassifier",
    "FairSSVAERegressor",
    "Fit",
    "InputError",
    "Members",
    "Missingness",
    "Observed",
    "RiskELBO",
    "RiskSettings",
    "Settings",
    "Splits",
    "StoredModel",
    "audit",
    "calibrate_fit",
    "channel",
    "evaluate",
    "evaluate_members",
    "fit",
    "guide_draws",
    "load",
    "load_dataset",
    "monitor",
    "prior_draws",
    "register_risk",
    "sample_channel",
    "samples_for",
    "split",
    "summarise",
    "synthetic",
]

# Where each name is defined, and under which name if it is another.
_DEFINED_IN = {
    "METHODS": "pyro_fairvae.baselines",
    "RISKS": "pyro_fairvae.risks",
    "Attributes": "pyro_fairvae.schema.attributes",
    "Audit": "pyro_fairvae.auditing.result",
    "Channel": "pyro_fairvae.channels.channel",
    "ChannelDraws": "pyro_fairvae.posterior.channel_draws",
    "FairDecisions": "pyro_fairvae.estimator.fair_decisions",
    "FairSSVAEClassifier": "pyro_fairvae.estimator.classifier",
    "FairSSVAERegressor": "pyro_fairvae.estimator.regressor",
    "Fit": "pyro_fairvae.inference.fit_result",
    "InputError": "pyro_fairvae.base.errors",
    "Members": "pyro_fairvae.nn.members",
    "Missingness": "pyro_fairvae.data",
    "Observed": "pyro_fairvae.schema.observed",
    "RiskELBO": "pyro_fairvae.inference.risk_elbo",
    "RiskSettings": "pyro_fairvae.risks",
    "Settings": "pyro_fairvae.inference.settings",
    "Splits": "pyro_fairvae.data",
    "StoredModel": "pyro_fairvae.storage.stored_model",
    "audit": "pyro_fairvae.auditing.auditing",
    "calibrate_fit": "pyro_fairvae.posterior.calibration",
    "channel": "pyro_fairvae.channels.priors",
    "evaluate": "pyro_fairvae.evaluation.metrics",
    "evaluate_members": "pyro_fairvae.evaluation.members",
    "fit": "pyro_fairvae.inference.training",
    "guide_draws": "pyro_fairvae.posterior.channel_draws",
    "load": "pyro_fairvae.storage.stored_model",
    "load_dataset": "pyro_fairvae.data",
    "monitor": "pyro_fairvae.auditing.monitoring",
    "prior_draws": "pyro_fairvae.posterior.channel_draws",
    "register_risk": "pyro_fairvae.risks",
    "sample_channel": "pyro_fairvae.models.channel_sites",
    "samples_for": "pyro_fairvae.risks",
    "split": "pyro_fairvae.data",
    "summarise": "pyro_fairvae.posterior.summaries",
    "synthetic": "pyro_fairvae.data",
}
_OTHER_NAMES = {"load": "load_model", "load_dataset": "load", "register_risk": "register"}


def __getattr__(name: str) -> Any:
    """An exported name, imported when it is asked for (PEP 562)."""
    if name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return getattr(import_module(_DEFINED_IN[name]), _OTHER_NAMES.get(name, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
