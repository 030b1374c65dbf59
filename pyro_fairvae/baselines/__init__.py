"""The methods that are compared, under one interface.

Each takes a :class:`Task` and weights of its trade-off, and returns a classifier for each weight. The module
of a method states its objective and source.
"""

from __future__ import annotations

from typing import Any

from pyro_fairvae.base.errors import require
from pyro_fairvae.baselines.as_printed import fit_as_printed
from pyro_fairvae.baselines.fairda import fit_fairda
from pyro_fairvae.baselines.fairdsr import fit_fairdsr
from pyro_fairvae.baselines.fairrf import fit_fairrf
from pyro_fairvae.baselines.interface import Classifier, Method, Task
from pyro_fairvae.baselines.library import fit_library, fit_settled, rows_with_group, rows_with_truth
from pyro_fairvae.baselines.mfd import fit_mfd
from pyro_fairvae.baselines.penalised import fit_penalised
from pyro_fairvae.baselines.proxies import fit_three_proxies
from pyro_fairvae.baselines.reductions import fit_exponentiated_gradient
from pyro_fairvae.baselines.reweighting import fit_reweighted
from pyro_fairvae.baselines.trees import fit_trees_reduced, fit_trees_settled, fit_trees_thresholds

# Weights of the trade-offs: of the library's risk, and of the penalties of other methods.
RISK = (0.0, 0.1, 0.4, 1.6, 6.4)
MMD = (0.0, 1.0, 5.0, 25.0, 125.0)
CORRELATION = (0.0, 0.05, 0.1, 0.2, 0.4)
ADVERSARY = (0.0, 0.3, 1.0, 3.0, 10.0)
BOUNDS = (0.0, 5.0, 10.0, 20.0, 50.0)  # 1/largest difference
TARGETS = (0.0, 15.0, 25.0, 40.0, 100.0)  # 1/target

# Ablations differ only in the options that they name; decisions are not refined after training.
AS_TRAINED = {"refine_decisions": 0.0}
PAPERS = AS_TRAINED | {"imputer": "features"}
VANILLA = PAPERS | {"risk_gradient": "vanilla", "samples": 20}
FREE: dict[str, Any] = {"by_metric": False}  # does not depend on the chosen risk
TOLD: dict[str, Any] = {"informed": True, "by_level": False}  # gets the truth, so missingness does not matter
ABLATION: dict[str, Any] = {"ablation": True}
COMPLETE: dict[str, Any] = {"complete": True}
IN_PAPER: dict[str, Any] = {"paper": True}
AT_ZERO: dict[str, Any] = {"plain": "ss_vae"}  # at weight 0 all of these are the same method
NEEDS_COLUMNS: dict[str, Any] = {
    "not_for_images": "pixels have no named features that are related to the group"
}
TREES: dict[str, Any] = {
    "not_for_images": "its gradient boosting is for tables and works poorly on pixels",
    "by_trunk": False,
}
OWN_TRUNK: dict[str, Any] = {"by_trunk": False}
MAIN: dict[str, Any] = {"main": True}

# fmt: off
_METHODS = (
    Method("fair_ssvae", "Fair-SS-VAE", fit_library(), RISK, cost=4, **MAIN, **IN_PAPER, **AT_ZERO),
    Method("fair_ssvae_settled", "Fair-SS-VAE, settled", fit_settled(), TARGETS, cost=6.3, **MAIN),
    Method("ss_vae", "SS-VAE (λ = 0)", fit_library(), (0.0,), cost=7, **MAIN, **IN_PAPER, **FREE),
    Method("vanilla", "vanilla risk", fit_library(VANILLA), RISK, cost=5, **MAIN, **IN_PAPER, **AT_ZERO),
    # The paper's method, piece by piece as it is printed, with its own trunk.
    Method("as_printed", "the paper's method as printed", fit_as_printed(), RISK,
           cost=10, plain="ss_vae_as_printed", **MAIN, **OWN_TRUNK),
    Method("ss_vae_as_printed", "SS-VAE as printed", fit_as_printed(), (0.0,), cost=6, **FREE,
           **OWN_TRUNK),
    Method("as_printed_vanilla", "vanilla risk as printed", fit_as_printed(vanilla=True), RISK,
           cost=8.5, plain="ss_vae_as_printed", **OWN_TRUNK),
    # The methods that the paper compares with.
    Method("mfd_gty_gta", "MFD (true y, true a)", fit_mfd("gty_gta"), MMD, cost=4.8, **TOLD, **FREE),
    Method("mfd_gty_randa", "MFD (true y, random a)", fit_mfd("gty_randa"), MMD, cost=4.8, **TOLD, **FREE),
    Method("mfd_predy_preda", "MFD (predicted y, a)", fit_mfd("predy_preda"), MMD, cost=4.8, **MAIN,
           **IN_PAPER, **FREE),
    Method("fairrf_age", "FairRF (age)", fit_fairrf(["age"]), CORRELATION, **MAIN, **IN_PAPER,
           **FREE, **NEEDS_COLUMNS),
    Method("fairrf", "FairRF (age, relationship, marital status)",
           fit_fairrf(["age", "relationship", "marital-status"]), CORRELATION, **FREE, **NEEDS_COLUMNS),
    Method("fairda", "FairDA", fit_fairda, ADVERSARY, cost=2.1, **MAIN, **IN_PAPER, **FREE),
    # Simple methods.
    Method("stated_risk", "risk on stated rows", fit_penalised("stated"), RISK, cost=1.7, **MAIN),
    Method("stated_rows", "stated rows only", fit_library(rows=rows_with_group), RISK, cost=2.1),
    Method("pseudo_labels", "pseudo-labels", fit_penalised("guessed"), RISK, cost=2.3),
    Method("cgl", "CGL pseudo-labels", fit_penalised("cgl"), RISK, cost=2.3),
    Method("fairdsr", "FairDSR", fit_fairdsr, RISK, cost=3.3, **MAIN),
    Method("three_proxies", "three weak proxies", fit_three_proxies, RISK, cost=1.6, **NEEDS_COLUMNS),
    Method("reweighting", "reweighting by (y, â)", fit_reweighted, (0.0, 0.25, 0.5, 1.0, 1.5),
           cost=1.5, **FREE),
    # Boosted trees.
    Method("trees_settled", "trees, settled", fit_trees_settled, TARGETS, cost=0.9, **MAIN, **TREES),
    Method("trees_thresholds", "trees, group thresholds", fit_trees_thresholds, RISK, cost=0.7, **TREES),
    Method("trees_reduced", "trees, Fairlearn on guesses", fit_trees_reduced, BOUNDS, cost=7.5, **TREES),
    Method("exponentiated_gradient", "Fairlearn on complete rows", fit_exponentiated_gradient, BOUNDS,
           cost=2.3, **TREES),
    # References, which are told what is hidden.
    Method("oracle", "oracle (nothing hidden)", fit_library(rows=rows_with_truth), RISK, cost=4, **MAIN,
           **TOLD, **COMPLETE),
    Method("oracle_settled", "oracle, settled", fit_settled(rows_with_truth), TARGETS, cost=6.3, **MAIN,
           **TOLD, **COMPLETE),
    # Ablations of the paper's claims.
    Method("as_trained", "Fair-SS-VAE, decisions as trained", fit_library(AS_TRAINED), RISK, cost=3.8,
           **ABLATION, **AT_ZERO),
    Method("soft", "soft q(a|x,ã)", fit_library(PAPERS), RISK, cost=3.8, **ABLATION,
           **AT_ZERO),
    Method("rounded", "rounded q(a|x,ã)", fit_library(PAPERS | {"imputer": "rounded"}), RISK, cost=3.8,
           **ABLATION, **AT_ZERO),
    Method("two_step", "frozen two-step q(a|x,ã)", fit_penalised("frozen"), RISK, cost=2.5,
           **ABLATION),
    *(
        Method(f"samples_{n}", f"Monte Carlo, N = {n}",
               fit_library(PAPERS | {"risk_estimator": "sampled", "memory": 0.1, "samples": n}), RISK,
               cost=cost, **ABLATION, **AT_ZERO)
        for n, cost in ((1, 3.8), (10, 3.8), (100, 4.3), (1000, 6.8))
    ),
    Method("paper_objective", "the paper's objective", fit_library(PAPERS | {"objective": "paper"}), RISK,
           cost=3.4, **ABLATION),
)
# fmt: on
METHODS: dict[str, Method] = {}


def register(method: Method) -> Method:
    """Make a method available by its name."""
    require(method.name not in METHODS, f"the method {method.name!r} exists already; choose another name.")
    METHODS[method.name] = method
    return method


for _method in _METHODS:
    register(_method)

__all__ = ["METHODS", "RISK", "TARGETS", "Classifier", "Method", "Task", "register"]
