"""What the paper leaves open of its method, chosen on validation rows as the paper does.

    python benchmarks/as_printed.py --groups gender race --seeds 100 101

The SS-VAE as printed (λ = 0) is trained on Adult, sparse, at each combination of rate, epochs and weights of
reconstruction and KL; splits are those of seeds that no comparison uses. Printed is the mean over groups and
seeds of −log g(ỹ|x) over the validation rows that state their label, and of the error there; the best is the
first line. Parts are kept in --out.
"""

from __future__ import annotations

import argparse
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from pyro_fairvae.base.options import build
from pyro_fairvae.baselines.as_printed import AS_PRINTED
from pyro_fairvae.data import split
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import fit, skip_validation
from pyro_fairvae.report import align
from pyro_fairvae.studies.config import DataConfig
from pyro_fairvae.studies.joint_fits import once

WEIGHTS = ((1.0, 1.0), (0.1, 1.0), (0.1, 0.1), (0.01, 0.1), (0.01, 0.01))  # of reconstruction and KL
RATES, EPOCHS = (1e-3, 3e-3), (15, 30)


def run(group: str, seed: int, choice: dict[str, Any], data_dir: Path | None) -> list[dict[str, Any]]:
    """Scores of one fit on validation rows that state their label."""
    data = DataConfig("adult", group=group, level="sparse")
    parts = split(data.table(seed, data_dir), data.missingness(), seed)
    fitted = fit(parts.train, parts.validation, [0.0], build(Settings, AS_PRINTED | choice), seed)
    table = parts.validation
    stated = table.y_obs < table.classes
    proba = fitted.predict_proba(table.x)[0][stated]
    labels = table.y_obs[stated]
    return [
        choice
        | {
            "group": group,
            "seed": seed,
            "cross_entropy": float(-proba.gather(-1, labels[:, None]).log().mean()),
            "error": float((proba.argmax(-1) != labels).double().mean()),
        }
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", nargs="+", default=["gender", "race"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/as-printed"), help="folder for the parts")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    skip_validation()
    arguments.out.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    names = ("reconstruction_weight", "kl_weight", "lr", "epochs")
    for group, seed in itertools.product(arguments.groups, arguments.seeds):
        for number, ((rec, kl), lr, epochs) in enumerate(itertools.product(WEIGHTS, RATES, EPOCHS)):
            choice = dict(zip(names, (rec, kl, lr, epochs), strict=True))
            path = arguments.out / f"{group}-{seed}-{number}.json"
            lines += once(path, choice, partial(run, group, seed, choice, arguments.data_dir))
    means = pd.DataFrame(lines).groupby(list(names))[["cross_entropy", "error"]].mean().reset_index()
    shown = [[*names, "−log g(ỹ|x)", "error %"]]
    for line in means.sort_values("cross_entropy").to_dict("records"):
        shown.append(
            [
                *(f"{line[name]:g}" for name in names),
                f"{line['cross_entropy']:.4f}",
                f"{100 * line['error']:.2f}",
            ]
        )
    print(align(shown))


if __name__ == "__main__":
    main()
