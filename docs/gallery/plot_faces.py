"""
Images
======

CelebA's files are read as its publisher has them. Here a folder like it is drawn: faces that smile or not, of
two groups with long or short hair, of whom some do not state theirs. ``fairvae train`` is called as on the
command line.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw
from pyro_fairvae.run.__main__ import main

from pyro_fairvae.data.celeba import ATTRIBUTE_NAMES

FACES, EPOCHS = 1000, 8

# %%
# A face is a circle with eyes, a mouth, and hair.

draw = np.random.default_rng(0)
male = draw.random(FACES) < 0.5
smiling = draw.random(FACES) < np.where(male, 0.4, 0.6)


def face(smiles, short):
    x, y = draw.integers(-3, 4, 2)
    image = Image.new("RGB", (44, 54), tuple(draw.integers(120, 200, 3)))
    pen, skin = ImageDraw.Draw(image), tuple(draw.integers(180, 250, 3))
    pen.ellipse((8 + x, 8 + y, 36 + x, 46 + y), skin)
    pen.rectangle((8 + x, 6 + y, 36 + x, (12 if short else 16) + y), "black")
    if not short:
        pen.rectangle((5 + x, 8 + y, 11 + x, 48 + y), "black")
        pen.rectangle((33 + x, 8 + y, 39 + x, 48 + y), "black")
    for eye in (16, 27):
        pen.ellipse((eye + x, 22 + y, eye + 3 + x, 25 + y), "black")
    pen.arc(
        (16 + x, (28 if smiles else 35) + y, 30 + x, 42 + y), *((0, 180) if smiles else (180, 360)), "red", 2
    )
    return image


# %%

folder = Path(tempfile.mkdtemp())
(folder / "img_align_celeba").mkdir()
values = draw.choice(("-1", "1"), (FACES, len(ATTRIBUTE_NAMES)))
for name, column in (("Male", male), ("Smiling", smiling)):
    values[:, ATTRIBUTE_NAMES.index(name)] = np.where(column, "1", "-1")
lines = [str(FACES), " ".join(ATTRIBUTE_NAMES)]
for row in range(FACES):
    name = f"{row + 1:06d}.jpg"
    face(smiling[row], male[row]).save(folder / "img_align_celeba" / name, quality=95)
    lines.append(" ".join([name, *values[row]]))
written = (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")

# %%

options = f"--dataset celeba --label Smiling --group Male --epochs {EPOCHS} --lambdas 0,0.4 --quiet"
code = main(["train", *options.split(), "--data-dir", str(folder), "--out", str(folder / "run")])

# %%
# Reconstructions, and the same z at every label and group.

figure, axes = plt.subplots(figsize=(9, 6))
axes.imshow(plt.imread(folder / "run" / "faces.png"))
axes.set_axis_off()
figure.tight_layout()
