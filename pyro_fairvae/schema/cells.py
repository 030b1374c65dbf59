"""Cells of a class and a group, and the names of their columns in a history."""

from __future__ import annotations

import re
from typing import NamedTuple

_COLUMN = re.compile(r"cell_y(\d+)_a(\d+)")


class Cell(NamedTuple):
    """A class ``y`` and a group ``a``, by their numbers."""

    y: int
    a: int

    @property
    def column(self) -> str:
        """The name of the cell's column."""
        return f"cell_y{self.y}_a{self.a}"

    @classmethod
    def of_column(cls, name: str) -> Cell | None:
        """The cell that a column describes; None for other columns."""
        match = _COLUMN.fullmatch(name)
        return None if match is None else cls(int(match[1]), int(match[2]))
