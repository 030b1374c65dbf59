"""Names of the columns of cells."""

from __future__ import annotations

import pytest

from pyro_fairvae.schema.cells import Cell


@pytest.mark.parametrize("cell", [Cell(0, 1), Cell(12, 0), Cell(3, 107)])
def test_a_cell_can_be_read_from_its_column(cell: Cell) -> None:
    assert Cell.of_column(cell.column) == cell


def test_the_name_of_a_column_stays_as_files_have_it() -> None:
    assert Cell(y=0, a=1).column == "cell_y0_a1"


@pytest.mark.parametrize("name", ["gap", "cell_y0", "cell_y0_a1_b2", "cell_ya_a0", "kl_y", ""])
def test_other_columns_are_about_no_cell(name: str) -> None:
    assert Cell.of_column(name) is None
