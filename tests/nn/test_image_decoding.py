"""A decoded image is a square of the file, the central one or another, filtered down."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_fairvae.data.image_cache import Cut, decode
from tests.support.pictures import file_of, noise, solid


def triangle(length: int, side: int) -> np.ndarray:
    """The weights (side, length) of a linear filter as wide as two of the new pixels."""
    scale = length / side
    centres = (np.arange(side) + 0.5) * scale
    weights = np.clip(1 - np.abs(np.arange(length) + 0.5 - centres[:, None]) / max(scale, 1), 0, None)
    return weights / weights.sum(1, keepdims=True)


@pytest.mark.parametrize(("height", "width", "side"), [(22, 18, 6), (18, 22, 7), (30, 30, 10), (10, 8, 12)])
def test_pixels_are_those_of_the_central_square_filtered(height: int, width: int, side: int) -> None:
    picture = noise(3, height, width)
    short = min(height, width)
    top, left = (height - short) // 2, (width - short) // 2
    square = picture[top : top + short, left : left + short].astype(float)
    weights = triangle(short, side)
    expected = np.einsum("ip,jq,pqc->cij", weights, weights, square)
    found = np.frombuffer(decode(file_of(picture), side), np.uint8).reshape(3, side, side)
    assert np.abs(found - expected).max() <= 1.01  # bytes are rounded after either direction


@pytest.mark.parametrize(
    ("cut", "top", "left", "edge"),
    [
        (Cut(0.5), 10, 5, 10),
        (Cut(0.5, down=0.1), 12, 5, 10),
        (Cut(0.5, down=-0.2), 6, 5, 10),
        (Cut(0.5, down=2), 20, 5, 10),  # no further than the image goes
        (Cut(0.5, down=-2), 0, 5, 10),
        (Cut(1.0, down=0.25), 10, 0, 20),
    ],
)
def test_another_square_can_be_cut(cut: Cut, top: int, left: int, edge: int) -> None:
    picture = noise(4, 30, 20)
    square = picture[top : top + edge, left : left + edge]
    assert decode(file_of(picture), 5, cut) == decode(file_of(square), 5)


def test_a_gradient_is_averaged_and_keeps_its_direction() -> None:
    """Red grows to the right, green downward, in steps of four pixels a step of the small image."""
    across = np.broadcast_to(np.arange(32) * 4, (32, 32))
    picture = np.stack([across, across.T, np.full((32, 32), 7)], -1).astype(np.uint8)
    red, green, blue = np.frombuffer(decode(file_of(picture), 8), np.uint8).reshape(3, 8, 8).astype(int)
    boxes = (np.arange(32) * 4).reshape(8, 4).mean(1)
    assert np.abs(red[:, 1:-1] - boxes[1:-1]).max() <= 1
    assert np.abs(green[1:-1] - boxes[1:-1, None]).max() <= 1
    assert (blue == 7).all()


@pytest.mark.parametrize("size", [(218, 178), (109, 89), (9, 9)])
def test_a_jpeg_keeps_its_colour_however_it_is_reduced(size: tuple[int, int]) -> None:
    content = file_of(solid((200, 100, 30), *size), "JPEG")
    found = np.frombuffer(decode(content, 16), np.uint8).reshape(3, -1).astype(int)
    assert np.abs(found - [[200], [100], [30]]).max() <= 3


def test_grey_pictures_become_coloured() -> None:
    grey = np.full((12, 12), 90, dtype=np.uint8)
    assert decode(file_of(grey), 4) == bytes([90]) * 48
