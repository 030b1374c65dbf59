"""Data sets, and the simulation of missing demographics and labels."""

from pyro_fairvae.data.adult import raw_adult
from pyro_fairvae.data.dataset import AnyTable, Dataset
from pyro_fairvae.data.missingness import LEVELS, Missingness, hide
from pyro_fairvae.data.registry import DATASETS, DEFAULT_DATASET, load, register
from pyro_fairvae.data.splits import Splits, split, split_complete
from pyro_fairvae.data.synthetic import synthetic
from pyro_fairvae.data.tables import Complete, Table

__all__ = [
    "DATASETS",
    "DEFAULT_DATASET",
    "LEVELS",
    "AnyTable",
    "Complete",
    "Dataset",
    "Missingness",
    "Splits",
    "Table",
    "hide",
    "load",
    "raw_adult",
    "register",
    "split",
    "split_complete",
    "synthetic",
]
