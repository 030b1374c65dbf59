"""The member of a model that a command uses, by its number or by its λ."""

from __future__ import annotations

from collections.abc import Sequence

from pyro_fairvae.base.errors import require


def check_choice(member: int | None, lambda_: float | None) -> None:
    """Raise :class:`InputError` where a member is named both by number and by λ."""
    require(member is None or lambda_ is None, "give member or lambda_, not both.", "member", "lambda_")


def member_number(lambdas: Sequence[float], member: int | None, lambda_: float | None, model: str) -> int:
    """The number of the member with number ``member``, or of the first with λ = ``lambda_``.

    ``lambdas`` are those of all members; ``model`` names the model in messages.
    """
    if lambda_ is not None:
        known = ", ".join(f"{weight:g}" for weight in lambdas)
        require(lambda_ in lambdas, f"no member of {model} has λ = {lambda_:g}; its members have {known}.")
        return list(lambdas).index(lambda_)
    assert member is not None
    require(
        0 <= member < len(lambdas),
        f"member {member} was asked for, but {model} has members 0 to {len(lambdas) - 1}.",
    )
    return member
