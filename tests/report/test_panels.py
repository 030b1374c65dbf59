"""Which methods the figures of a panel show."""

from __future__ import annotations

import pandas as pd

from pyro_fairvae.report.panels import main_methods


def test_where_no_main_method_is_compared_all_are_shown() -> None:
    results = pd.DataFrame({"method": ["ours", "a", "b", "c"], "main": [False, True, False, False]})
    assert main_methods(results, "ours")["method"].tolist() == ["ours", "a"]
    others = results[results["method"].isin(["b", "c"])]
    assert main_methods(others, "ours")["method"].tolist() == ["b", "c"]
    assert main_methods(others.drop(columns="main"), "ours")["method"].tolist() == ["b", "c"]
