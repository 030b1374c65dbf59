"""Images through the whole library: rows on the disk, splits by person, training, looking, comparing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pyro_fairvae.run.__main__ import main

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.options import build
from pyro_fairvae.baselines import METHODS, Task
from pyro_fairvae.data import Missingness, Splits, split, split_complete
from pyro_fairvae.data.images import ImageTable
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import fit
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.image_rows import PixelRows, Pixels
from pyro_fairvae.schema.observed import Observed, in_pieces, rows_at_once
from pyro_fairvae.studies.faces import Faces, look_at_faces
from pyro_fairvae.studies.reproduction import ReproduceConfig
from tests.support.pictures import write_celeba

SIDE = 8
RATES = Missingness(unavailable=(0.5, 0.1))
SMALL = {"hidden": 16, "latent": 4, "decoder_hidden": 16, "epochs": 8, "batch": 64, "lr": 5e-3}


def colours(rows: int = 900, seed: int = 0, people: bool = True) -> ImageTable:
    """Images that are red in group 1 and green in group 0, brighter at the top in class 1."""
    draw = np.random.default_rng(seed)
    a = draw.integers(2, size=rows)
    y = np.where(draw.random(rows) < 0.7, a, 1 - a)
    images = draw.integers(0, 60, size=(rows, 3, SIDE, SIDE))
    images[np.arange(rows), 1 - a] += 110
    images[y == 1, :, : SIDE // 2] += 70
    stored = torch.from_numpy(images.astype(np.uint8)).flatten(1)
    person = draw.integers(rows // 3, size=rows) if people else None
    return ImageTable(
        stored,
        np.arange(rows),
        y,
        a,
        ("dark", "bright"),
        Attributes.single(("green", "red")),
        Pixels(3, SIDE),
        person,
    )


@pytest.fixture(scope="module")
def parts() -> Splits:
    return split(colours(), RATES, 0)


def settings(**given: object) -> Settings:
    return build(Settings, SMALL | {"elbo_weight": 0.02, **given})


@pytest.fixture(scope="module")
def fitted(parts: Splits) -> Fit:
    return fit(parts.train, parts.validation, [0.0, 1.0], settings(), 0)


def test_rows_read_are_the_bytes_that_are_stored() -> None:
    stored = torch.randint(256, (20, 12), dtype=torch.uint8)
    index = torch.randint(20, (3, 7))
    rows = PixelRows(stored, index)
    assert rows.shape == (3, 7, 12)
    member, chosen = torch.arange(3).unsqueeze(-1), torch.tensor([[0, 2], [1, 1], [6, 0]])
    expected = stored.float()[index] * (2 / 255) - 1
    assert torch.allclose(rows[member, chosen], expected[member, chosen], atol=1e-6)
    assert torch.equal(rows.take((member, chosen))[:], rows[member, chosen])
    alone = [PixelRows(stored, each) for each in index]
    assert torch.equal(PixelRows.stack(alone)[:], rows[:])


def test_stacks_are_of_one_store() -> None:
    rows = [PixelRows(torch.zeros(4, 12, dtype=torch.uint8), torch.arange(4)) for _ in range(2)]
    with pytest.raises(InputError, match="same store"):
        PixelRows.stack(rows)


@pytest.mark.parametrize("members", [False, True])
def test_pieces_are_all_rows_in_order(members: bool) -> None:
    index = torch.randint(9, (2, 600) if members else (600,))
    rows = PixelRows(torch.randint(256, (9, 12), dtype=torch.uint8), index)
    pieces = list(in_pieces(rows))
    assert max(piece.shape[-2] for piece in pieces) == rows_at_once(rows)
    assert torch.equal(torch.cat(pieces, dim=-2), rows[:])


def test_nobody_is_in_two_parts() -> None:
    table = colours(2000)
    found = split_complete(table, 3)
    people = {}
    for name, part in found.items():
        assert isinstance(part.x, PixelRows)
        assert table.people is not None
        people[name] = set(table.people[part.x.index.numpy()].tolist())
    assert not people["train"] & people["test"]
    assert not people["train"] & people["validation"]
    assert not people["validation"] & people["test"]
    shares = [found[name].rows / table.rows for name in ("train", "validation", "test")]
    assert np.allclose(shares, [0.7, 0.1, 0.2], atol=0.01)
    assert sum(part.rows for part in found.values()) == table.rows


@pytest.mark.parametrize("people", [False, True])
def test_the_papers_parts_are_forty_five_and_five_thousand(people: bool) -> None:
    rows = 50_000
    person = np.random.default_rng(0).integers(10_000, size=rows) if people else None
    table = ImageTable(
        torch.zeros(1, 12, dtype=torch.uint8), np.zeros(rows, dtype=np.int64), np.arange(rows) % 2,
        np.arange(rows) // 2 % 2, ("0", "1"), Attributes.single(("0", "1")), Pixels(3, 2), person,
    )  # fmt: skip
    sizes = [part.rows for part in split_complete(table, 0).values()]
    assert np.allclose(sizes, [40_000, 5000, 5000], atol=10 if people else 0)


def test_a_fit_learns_labels_groups_and_who_withholds(fitted: Fit, parts: Splits) -> None:
    decided = fitted.decide(parts.test.features)
    assert (decided[0].numpy() == parts.test.y).mean() > 0.95
    heads = torch.cat([fitted.program.guide.heads(x).group_logits for x in in_pieces(parts.test.features)], 1)
    assert (heads[0].argmax(-1).numpy() == parts.test.a).mean() > 0.97
    program = fitted.at_chosen_epoch()
    channel = program.guide.channel_mean(program.guide.channel_a)[0].detach()
    shown = [
        float(
            (parts.train.a_obs == 2)[torch.from_numpy(split_complete(colours(), 0)["train"].a == g)]
            .float()
            .mean()
        )
        for g in range(2)
    ]
    assert channel[:, 2].tolist() == pytest.approx(shown, abs=0.03)


def test_what_is_said_of_an_image_is_said_of_its_mirror_image(fitted: Fit, parts: Splits) -> None:
    """Of decisions and of imputations; but not where training images were not mirrored either."""
    table = parts.validation
    x = table.x[torch.arange(table.rows)]
    mirrored = x.unflatten(-1, (3, SIDE, SIDE)).flip(-1).flatten(1)
    torch.testing.assert_close(fitted.predict_proba(x), fitted.predict_proba(mirrored))
    torch.testing.assert_close(fitted.impute(table), fitted.impute(replace(table, x=mirrored)))
    plain = fit(parts.train, table, [0.0], settings(epochs=1, augmentation="none"), 0)
    assert (plain.predict_proba(x) - plain.predict_proba(mirrored)).abs().max() > 1e-3


def test_processes_that_read_ahead_change_no_number(parts: Splits) -> None:
    short = settings(epochs=2)
    alone, helped = (
        fit(parts.train, parts.validation, [0.0, 1.0], short, 0, workers=workers) for workers in (0, 2)
    )
    assert alone.history == helped.history
    assert torch.equal(alone.predict_proba(parts.test.features), helped.predict_proba(parts.test.features))


@torch.no_grad()
def test_mixed_precision_is_near_full(parts: Splits, fitted: Fit) -> None:
    x = parts.test.features[torch.arange(50)]
    encoder = fitted.program.guide.encoder
    full = fitted.program.guide.heads(x)
    encoder.mixed = True
    try:
        mixed = fitted.program.guide.heads(x)
    finally:
        encoder.mixed = False
    for name, exact, near in zip(full._fields[:7], full[:7], mixed[:7], strict=True):  # no proxies: no more
        assert near.dtype == torch.float32, name
        assert not torch.equal(exact, near) or name == "features", name
        assert torch.allclose(exact, near, atol=0.1 * float(exact.abs().max())), name
    short = settings(epochs=1, precision="mixed")
    assert short.mixed(parts.train.columns, "cpu")
    assert not settings().mixed(parts.train.columns, "cpu")
    assert settings().mixed(parts.train.columns, "cuda")
    with torch.enable_grad():
        fit(parts.train, parts.validation, [0.0], short, 0)


def test_members_may_have_images_of_their_own() -> None:
    table = colours(people=False)
    parts = [split(table, RATES, seed) for seed in (0, 1)]
    train = Observed.stack([part.train for part in parts])
    assert train.members == 2
    assert torch.equal(train.batch(torch.tensor([[3], [5]])).x[1, 0], parts[1].train.x[torch.tensor(5)])
    both = fit(train, Observed.stack([part.validation for part in parts]), [0.0, 0.0], settings(), [0, 1])
    for member, part in enumerate(parts):
        assert (both.decide(part.test.features)[member].numpy() == part.test.y).mean() > 0.95


def test_a_switched_group_changes_the_colour_and_a_switched_label_the_brightness(
    fitted: Fit, parts: Splits
) -> None:
    faces = look_at_faces(fitted, parts.test)
    assert faces is not None
    assert faces.originals.shape == (8, 3, SIDE, SIDE)
    apart = np.abs(faces.originals.astype(float) - faces.reconstructions).mean()
    unlike = np.abs(faces.originals.astype(float) - faces.originals[::-1]).mean()
    assert apart < 0.6 * unlike
    redness = (faces.switched[:, :, :, 0].astype(float) - faces.switched[:, :, :, 1]).mean((-1, -2))
    assert (redness[:, :, 1] - redness[:, :, 0]).mean() > 20
    top = faces.switched[..., : SIDE // 2, :].astype(float).mean((-1, -2, -3))
    bottom = faces.switched[..., SIDE // 2 :, :].astype(float).mean((-1, -2, -3))
    lit = top - bottom
    assert (lit[:, 1] - lit[:, 0]).mean() > 5
    again = Faces.from_record(faces.record())
    assert np.array_equal(again.switched, faces.switched)
    assert again.groups == ("green", "red")


@pytest.mark.parametrize("name", ["mfd_predy_preda", "stated_risk", "fairda"])
def test_rivals_learn_from_images(parts: Splits, name: str) -> None:
    classifier = METHODS[name].fit(Task(parts.train, parts.validation, settings()), [0.0, 1.0])
    decided = classifier.decide(parts.test.features)
    assert (decided[0].numpy() == parts.test.y).mean() > 0.9


def test_methods_that_need_columns_are_refused_for_images() -> None:
    with pytest.raises(InputError, match=r"FairRF.*not for images.*no named features"):
        ReproduceConfig(dataset="celeba", methods=("fair_ssvae", "fairrf_age"))
    methods = ReproduceConfig(dataset="celeba").all_methods
    assert not {"fairrf", "fairrf_age", "exponentiated_gradient"} & set(methods)
    assert {"fair_ssvae", "mfd_predy_preda", "fairda"} <= set(methods)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--label", "Atractive"], "Attractive"),
        (["--group", "Mal"], "Male"),
        (["--label", "Male"], "both the label and the group"),
        (["--side", "4"], r"side must be within \[8, 256\], got 4"),
        (["--trunk", "mlp"], "trunk for images"),
        (["--trunk", "resnet"], "unknown trunk"),
        (["--workers", "-1"], "workers must not be negative"),
        (["--augmentation", "rotate"], "unknown augmentation"),
    ],
)
def test_bad_options_are_refused(
    given: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    write_celeba(tmp_path / "celeba", [np.zeros((22, 18, 3), dtype=np.uint8)] * 64)
    monkeypatch.setenv("FAIRVAE_CACHE", str(tmp_path / "cache"))
    command = ["train", "--dataset", "celeba", "--data-dir", str(tmp_path), "--out", str(tmp_path / "run")]
    assert main([*command, *given]) == 2
    assert re.search(words, capsys.readouterr().err)
    assert not (tmp_path / "run" / "results.json").exists()


def test_the_commands_take_celeba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    pictures = [draw.integers(0, 256, (22, 18, 3), dtype=np.uint8) for _ in range(192)]
    write_celeba(tmp_path / "celeba", pictures, "img_align_celeba.zip", people=list(range(192)))
    monkeypatch.setenv("FAIRVAE_CACHE", str(tmp_path / "cache"))
    place = ["--data-dir", str(tmp_path)]
    small = ["--dataset", "celeba_cheekbones", "--side", "8", "--epochs", "2", "--batch", "32"]
    run = tmp_path / "run"
    light = ["--hidden", "16", "--lambdas", "0,1", "--intervals", "given_h", "--quiet"]
    assert main(["train", *place, *small, *light, "--out", str(run)]) == 0
    assert (run / "faces.png").read_bytes().startswith(b"\x89PNG")
    assert main(["decide", str(run), *place]) == 0
    grid = tmp_path / "grid"
    methods = ["--methods", "fair_ssvae,ss_vae,mfd_predy_preda", "--preset", "smoke", "--rows", "192"]
    assert main(["reproduce", *place, *small, *methods, "--quiet", "--workers", "2", "--out", str(grid)]) == 0
    assert (grid / "celeba_cheekbones-Male-faces.png").is_file()
    assert "same z" in (grid / "report.html").read_text()
