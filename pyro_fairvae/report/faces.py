"""Figure of images and of images decoded from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyro_fairvae.report.figures import blank_figure, write_figure
from pyro_fairvae.studies.faces import Faces

GAIN = 6  # factor by which changes are magnified


def draw_faces(path: Path, faces: Faces) -> None:
    """A row for each image: itself, its reconstruction, and the same z at every label and group.

    The last two columns show what switching from the first label, or group, to the last changes, magnified
    around grey and averaged over the groups, or labels.
    """
    switched = faces.switched.astype(float)
    columns = [("original", faces.originals), ("reconstruction", faces.reconstructions)] + [
        (f"{label},\n{group}", faces.switched[:, c, g])
        for c, label in enumerate(faces.classes)
        for g, group in enumerate(faces.groups)
    ]
    columns += [
        (f"change to\n{faces.classes[-1]}, × {GAIN}", magnified((switched[:, -1] - switched[:, 0]).mean(1))),
        (
            f"change to\n{faces.groups[-1]}, × {GAIN}",
            magnified((switched[:, :, -1] - switched[:, :, 0]).mean(1)),
        ),
    ]
    count = len(faces.originals)
    figure = blank_figure(1.25 * len(columns), 1.15 * count + 0.5)
    grid = figure.subplots(count, len(columns), squeeze=False)
    for place, (title, images) in enumerate(columns):
        grid[0, place].set_title(title, fontsize=8)
        for axes, image in zip(grid[:, place], images, strict=True):
            axes.imshow(np.moveaxis(image, 0, -1), interpolation="nearest")
            axes.set_axis_off()
    write_figure(figure, path)


def magnified(change: np.ndarray) -> np.ndarray:
    """Differences between bytes as bytes around grey, ``GAIN`` times as large."""
    return np.clip(np.round(127.5 + GAIN * change), 0, 255).astype(np.uint8)


def faces_in_words(faces: Faces) -> str:
    """Alternative text of the figure."""
    return (
        f"{len(faces.originals)} test images, each beside its reconstruction and the decoder's image for the "
        f"same z at {len(faces.classes) * len(faces.groups)} combinations of label and group, and what "
        "switching either changes"
    )
