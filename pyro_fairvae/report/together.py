"""Decisions about all rows of a table together, in text."""

from __future__ import annotations

from pyro_fairvae.data.coded_columns import word_of
from pyro_fairvae.evaluation.joint_decisions import DecidedTogether
from pyro_fairvae.report.text import align


def together_table(found: DecidedTogether) -> str:
    """Objective, error, risk and rates by group, of decisions about each row alone and together."""
    beyond = f" beyond {found.target:g}" if found.target else ""
    lines = [["decisions", "objective", "error %", f"{found.risk} %"]]
    for name, when in (("alone", "before"), ("together", "after")):
        value = found.summary.loc[when]
        numbers = [f"{100 * value[column]:.2f}" for column in ("error", "risk")]
        lines.append([name, f"{value['objective']:.5f}", *numbers])
    rates = [["group", "decision", "alone %", "together %", "right alone %", "right together %"]]
    for (group, label), line in found.rates.iterrows():
        rates.append([group, word_of(label), *(f"{100 * share:.2f}" for share in line)])
    best = "; no decisions have a lower objective" if found.best else ""
    return (
        f"rule {found.rule}, λ = {found.lambda_:g} of {found.risk}{beyond}: {found.changed} of "
        f"{len(found.decisions)} decisions differ from those about each row alone{best}\n{align(lines)}\n\n"
        f"{align(rates)}\n"
        "(expected under the imputed groups and labels; right: of those whose label it is)"
    )
