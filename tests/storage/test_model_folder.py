"""Models in folders: what is read is what was written, and nothing else is taken for a model."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load, save

from pyro_fairvae.base.documents import check_document
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.schema.documents import Classes
from pyro_fairvae.storage import model_folder as saved
from pyro_fairvae.storage.contents import classes_content, classes_from, is_plain
from pyro_fairvae.storage.model_folder import DOCUMENT, DRAWS, TENSORS, TREES
from tests.support.user_tables import made_table

ROWS = 120


def untrained(**changes: Any) -> FairSSVAEClassifier:
    tiny = {"latent": 2, "decoder_hidden": 8, "pieces": 3}
    small = {"lambdas": (0.0, 1.0), "epochs": 2, "batch": 64, "hidden": 8, "layers": 1}
    return FairSSVAEClassifier(**{**small, "intervals": "given_h", "options": tiny, **changes})


def table() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "x": draw.normal(size=ROWS),
            "gaps": np.where(draw.random(ROWS) < 0.2, np.nan, draw.lognormal(size=ROWS)),
            "word": draw.choice(["a", "b", "own", "ß"], ROWS),
            "when": pd.date_range("2020-01-01", periods=ROWS, freq="7h"),
        }
    )


def stated(values: list[Any], seed: int) -> np.ndarray:
    """Values at random, of which some are missing."""
    draw = np.random.default_rng(seed)
    found = np.array(values, dtype=object)[draw.integers(len(values), size=ROWS)]
    found[draw.random(ROWS) < 0.2] = None
    return found


@pytest.fixture(scope="module")
def words() -> FairSSVAEClassifier:
    """Classes and groups that are words, some of which priors reserve."""
    model = untrained(missing_values=["?"], max_disparity=None)
    return model.fit(table(), stated(["no", "unavailable"], 1), stated(["own", "m", "?"], 2))


@pytest.fixture(scope="module")
def numbers() -> FairSSVAEClassifier:
    """Whole numbers for classes, and an array, which has no names."""
    return untrained(layers=2).fit(
        table()[["x", "gaps"]].to_numpy(), stated([3, -1, 7], 3), stated([0, 1], 4)
    )


@pytest.fixture(scope="module")
def several() -> FairSSVAEClassifier:
    """Several sensitive columns, and classes in floating point; the table has no numbers."""
    groups = pd.DataFrame({"sex": stated(["f", "m"], 5), "age": stated([1, 2], 6)})
    return untrained().fit(table()[["word"]], stated([1.0, 5.0], 7), groups)


@pytest.fixture(scope="module")
def groupless() -> FairSSVAEClassifier:
    """Truth values for classes, and nobody's group."""
    return untrained(lambdas=(0.0,)).fit(table(), stated([True, False], 8))


MODELS: dict[str, Callable[[], Any]] = {
    "words": table,
    "numbers": lambda: table()[["x", "gaps"]].to_numpy(),
    "several": lambda: table()[["word"]],
    "groupless": table,
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_was_read_is_the_one_that_was_written(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, X = request.getfixturevalue(name), MODELS[name]()
    model.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [DRAWS, DOCUMENT, TREES, TENSORS]

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a pickle was read")

    for module, function in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(module, function, refuse)
    again = FairSSVAEClassifier.load(tmp_path / "model", device="cpu")
    for member in range(len(model.fit_.lambdas)):
        for each in (model, again):
            each.select(lambda_=model.fit_.lambdas[member])
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        if model.knows_groups_:
            np.testing.assert_array_equal(again.predict_groups_proba(X), model.predict_groups_proba(X))
    pd.testing.assert_frame_equal(again.frontier_, model.frontier_, check_exact=True)
    pd.testing.assert_frame_equal(again.channels_, model.channels_, check_exact=True)
    assert again.predict(X).dtype == model.predict(X).dtype
    assert [*map(type, again.classes_.tolist())] == [*map(type, model.classes_.tolist())]
    for attribute in ("attributes_", "encoder_", "groups_", "n_features_in_", "metric_", "summary_"):
        assert getattr(again, attribute) == getattr(model, attribute)
    assert (
        getattr(again, "feature_names_in_", np.array(())).tolist()
        == getattr(model, "feature_names_in_", np.array(())).tolist()
    )
    assert (again.fit_.settings, again.fit_.chosen_epoch) == (model.fit_.settings, model.fit_.chosen_epoch)
    pd.testing.assert_frame_equal(pd.DataFrame(again.fit_.history), pd.DataFrame(model.fit_.history))
    for key in ("lambdas", "hidden", "layers", "missing_values", "options"):
        assert list(np.atleast_1d(again.get_params()[key])) == list(np.atleast_1d(model.get_params()[key]))


def test_classes_are_what_was_given(
    words: FairSSVAEClassifier,
    numbers: FairSSVAEClassifier,
    several: FairSSVAEClassifier,
    groupless: FairSSVAEClassifier,
) -> None:
    found = [each.classes_.tolist() for each in (words, numbers, several, groupless)]
    assert found == [["no", "unavailable"], [-1, 3, 7], [1.0, 5.0], [False, True]]
    assert words.groups_ == ("m", "'own'")
    assert several.groups_ == ("f, 1", "f, 2", "m, 1", "m, 2")
    assert groupless.groups_ == ()


def test_a_model_that_was_read_can_be_written_again(words: FairSSVAEClassifier, tmp_path: Path) -> None:
    words.save(tmp_path / "first")
    FairSSVAEClassifier.load(tmp_path / "first", device="cpu").save(tmp_path / "second")
    for name in (DOCUMENT, TENSORS, TREES):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_a_model_is_not_overwritten_unless_asked(
    words: FairSSVAEClassifier, groupless: FairSSVAEClassifier, tmp_path: Path
) -> None:
    words.save(tmp_path)
    before = (tmp_path / DOCUMENT).read_bytes(), (tmp_path / TENSORS).read_bytes()
    with pytest.raises(InputError, match="already holds a model"):
        groupless.save(tmp_path)
    assert before == ((tmp_path / DOCUMENT).read_bytes(), (tmp_path / TENSORS).read_bytes())
    groupless.save(tmp_path, overwrite=True)
    assert FairSSVAEClassifier.load(tmp_path, device="cpu").classes_.tolist() == [False, True]


def test_a_folder_that_cannot_be_made_is_refused(words: FairSSVAEClassifier, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make the folder"):
        words.save(tmp_path / "file")


@pytest.fixture
def folder(words: FairSSVAEClassifier, tmp_path: Path) -> Path:
    words.save(tmp_path / "model")
    return tmp_path / "model"


def refused(folder: Path, told: str) -> None:
    with pytest.raises(InputError, match=told):
        FairSSVAEClassifier.load(folder, device="cpu")


@pytest.mark.parametrize("name", [DOCUMENT, TENSORS])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_cut_file_is_refused(folder: Path, name: str, share: float) -> None:
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: int(share * len(whole))])
    refused(folder, f"{folder / name} .*(damaged|broken)")


@pytest.mark.parametrize("name", [DOCUMENT, TENSORS])
def test_a_flipped_bit_is_refused_wherever_it_is(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    draw = np.random.default_rng(0)
    for place, bit in zip(draw.integers(len(whole), size=40), draw.integers(7, size=40), strict=True):
        changed = bytearray(whole)
        changed[place] ^= 1 << bit
        (folder / name).write_bytes(changed)
        if name == DOCUMENT and _means_the_same(whole, bytes(changed)):
            continue
        with pytest.raises(InputError, match=str(folder)):
            saved.read_model(folder)


def _means_the_same(first: bytes, second: bytes) -> bool:
    """Space and the version of the library that wrote it are all that may differ in a document."""
    try:
        contents = [json.loads(each) for each in (first, second)]
    except ValueError:
        return False
    for each in contents:
        each.pop("library", None)
    return contents[0] == contents[1]


@pytest.mark.parametrize("name", [DOCUMENT, TENSORS])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refused(folder, f"{folder} is not the folder of a model: it has no {name}")
    shutil.rmtree(folder)
    refused(folder, f"it has no {DOCUMENT}")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[1, 2]", "does not describe a model of pyro_fairvae"),
        ('"words"', "does not describe a model of pyro_fairvae"),
        ("null", "does not describe a model of pyro_fairvae"),
        ('{"format": "another"}', "does not describe a model of pyro_fairvae"),
        ('{"format": "pyro_fairvae model", "version": 1}', "is damaged"),
        ('{"format": "pyro_fairvae model", "version": 1, "sha256": "x"}', "is damaged"),
        ("[" * 100_000, "is not the description of a model of pyro_fairvae, or is damaged"),
        ("{" + "1" * 10_000, "is not the description of a model of pyro_fairvae, or is damaged"),
        (b"\xff\xfe\x00", "is not the description of a model of pyro_fairvae, or is damaged"),
    ],
)
def test_json_of_something_else_is_refused(folder: Path, content: str | bytes, told: str) -> None:
    (folder / DOCUMENT).write_bytes(content.encode() if isinstance(content, str) else content)
    refused(folder, f"{folder / DOCUMENT} {told}")


@pytest.mark.parametrize("version", [0, 3, "2", None, [2], True])
def test_another_version_is_refused_with_both_versions(folder: Path, version: Any) -> None:
    document = json.loads((folder / DOCUMENT).read_text())
    (folder / DOCUMENT).write_text(json.dumps(document | {"version": version, "library": "9.9"}))
    refused(folder, f"{folder} has version .* written by pyro_fairvae 9.9; .* which reads versions 1 and 2")


def test_tensors_of_another_model_are_refused(
    folder: Path, groupless: FairSSVAEClassifier, tmp_path: Path
) -> None:
    groupless.save(tmp_path / "other")
    shutil.copy(tmp_path / "other" / TENSORS, folder / TENSORS)
    refused(folder, f"{folder / TENSORS} is damaged, or of another model")


def test_a_pickle_is_not_taken_for_tensors(folder: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (folder / "exploded",))

    (folder / TENSORS).write_bytes(pickle.dumps(Bomb()))
    seal(folder)
    refused(folder, f"{folder / TENSORS} is damaged")
    torch.save(Bomb(), folder / TENSORS)
    seal(folder)
    refused(folder, f"{folder / TENSORS} is damaged")
    assert not (folder / "exploded").exists()


def seal(folder: Path, change: Callable[[dict[str, Any]], Any] = lambda _: None) -> None:
    """Change a document and vouch for it, as somebody could who means harm."""
    document = json.loads((folder / DOCUMENT).read_text())
    change(document)
    body = {key: value for key, value in document.items() if key not in saved.HEAD}
    digests = {
        DOCUMENT: hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest(),
    } | {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in (TENSORS, DRAWS, TREES)
        if (folder / name).exists()
    }
    (folder / DOCUMENT).write_text(json.dumps(document | {"sha256": digests}))


def put(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    """What sets one place of a document."""

    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return change


KEYS = [
    "parameters", "classes", "attributes", "knows_groups", "columns", "feature_names", "fit",
    "selected", "metric", "frontier", "posterior", "summary", "source",
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_a_document_that_lacks_something_is_refused(folder: Path, key: str) -> None:
    seal(folder, lambda document: document.pop(key))
    refused(folder, f"{folder / DOCUMENT} .*`{key}`")


@pytest.mark.parametrize(
    "change",
    [
        *(put(key, to=5) for key in ("parameters", "classes", "attributes", "columns", "fit", "frontier")),
        put("parameters", to={"nonsense": 1}),
        put("classes", to=["no", "yes"]),
        put("classes", "kind", to="object"),
        put("classes", "kind", to="int"),
        put("classes", "dtype", to="<U1"),
        put("classes", "dtype", to="<U500000000"),
        put("classes", "dtype", to="V8"),
        put("classes", "dtype", to="i8, i8"),
        put("classes", "dtype", to=7),
        put("classes", "values", to=5),
        put("classes", "values", to=["no"]),
        put("classes", "values", to=["no", "no"]),
        put("classes", "values", to=["no", None]),
        put("classes", "values", to=["a", "b", "c"]),
        put("attributes", "names", to=5),
        put("attributes", "names", to=["a", "b"]),
        put("attributes", "values", to=[["f"]]),
        put("attributes", "values", to=[["f", "m", "x"]]),
        put("attributes", to={"names": list(map(str, range(40))), "values": [["f", "m"]] * 40}),
        put("columns", "numbers", to=[]),
        put("columns", "numbers", 0, to={"name": "x"}),
        put("columns", "numbers", 0, "deviation", to="1"),
        put("columns", "numbers", 0, "more", to=1),
        put("columns", "categories", 0, "values", to=["a"]),
        put("selected", to="first"),
        put("fit", "settings", "hidden", to=10**9),
        put("fit", "settings", "layers", to=10**9),
        put("fit", "settings", "latent", to=10**12),
        put("fit", "settings", "decoder_hidden", to=10**9),
        put("fit", "settings", "pieces", to=10**12),
        put("fit", "settings", "hidden", to="wide"),
        put("fit", "settings", "hidden", to=7),
        put("fit", "settings", "nonsense", to=7),
        put("fit", "settings", "prior_a", to="{own: [}"),
        put("fit", "settings", to=[]),
        put("fit", "lambdas", to=[0.0] * 1000),
        put("fit", "lambdas", to=[]),
        put("fit", "lambdas", to=["much", 1]),
        put("fit", "chosen_epoch", to=[1]),
        put("fit", "chosen_epoch", to=None),
        put("fit", "history", to=[1]),
        put("frontier", "error", to=["low", "high"]),
    ],
)
def test_a_document_of_wrong_types_or_sizes_is_refused(folder: Path, change: Callable[[dict], None]) -> None:
    seal(folder, change)
    refused(folder, str(folder / DOCUMENT))


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.pop("program/guide.sites.pi"),
        lambda tensors: tensors.update({"chosen/guide.sites.pi": torch.ones(2, 1, 5)}),
        lambda tensors: tensors.update({"chosen/guide.sites.pi": torch.ones(2, 1, 4, dtype=torch.float64)}),
        lambda tensors: tensors.update({"nonsense/x": torch.ones(1)}),
        lambda tensors: tensors.update({"nonsense": torch.ones(1)}),
        lambda tensors: tensors.update({"program/nonsense": torch.ones(1)}),
        lambda tensors: tensors.update({"adjustment": torch.ones(1, 2, 2, 2)}),
        lambda tensors: tensors.clear(),
    ],
)
def test_tensors_that_are_not_the_networks_are_refused(folder: Path, change: Callable[[dict], Any]) -> None:
    tensors = load((folder / TENSORS).read_bytes())
    change(tensors)
    (folder / TENSORS).write_bytes(save(tensors))
    seal(folder)
    refused(folder, str(folder))


def test_a_seal_alone_changes_nothing(folder: Path) -> None:
    """What the tests above do is refused for what they change."""
    seal(folder)
    assert FairSSVAEClassifier.load(folder, device="cpu").classes_.tolist() == ["no", "unavailable"]


@pytest.mark.parametrize(
    "classes",
    [
        np.array(["a", "b"]),
        np.array(["a", "ß€"], dtype=object),
        np.array([-1, 3]),
        np.array([0, 255], dtype=np.uint8),
        np.array([0, 1], dtype=object),
        np.array([0.1, 1e300, np.nextafter(0.1, 1)]),
        np.array([0.1, 0.2], dtype=np.float32),
        np.array([False, True]),
    ],
    ids=lambda classes: str(classes.dtype),
)
def test_classes_come_back_from_json_as_they_were(classes: np.ndarray) -> None:
    content = json.loads(json.dumps(classes_content(classes)))
    again = classes_from(check_document(content, Classes, "here", "classes"))
    assert again.dtype == classes.dtype
    assert again.tolist() == classes.tolist()


@pytest.mark.parametrize("classes", [np.array([1, "a"], dtype=object), np.array([b"a", b"b"])])
def test_classes_that_json_does_not_have_are_refused(classes: np.ndarray) -> None:
    with pytest.raises(InputError, match="cannot be saved; expected bool, int, float, str"):
        classes_content(classes)


def test_plain_is_what_json_keeps() -> None:
    for value in (None, True, 1, 0.5, "a", [1, ["a"]], (), {"a": {"b": None}}):
        assert is_plain(value)
        assert json.loads(json.dumps(value)) == (list(value) if isinstance(value, tuple) else value)
    for other in ({1: 2}, np.int64(1), Path("a"), [object()], {"a": {1}}, b"a"):
        assert not is_plain(other)


def test_arrays_among_the_parameters_are_saved(tmp_path: Path) -> None:
    made = made_table(60)
    words = made.a_obs.fillna("?")
    model = untrained(missing_values=np.array(["?"]), lambdas=np.array([0.0, 0.7])).fit(
        made.X, made.y_obs, words
    )
    model.save(tmp_path / "model")
    loaded = FairSSVAEClassifier.load(tmp_path / "model", "cpu")
    assert (list(loaded.lambdas), list(loaded.missing_values)) == ([0.0, 0.7], ["?"])
    np.testing.assert_array_equal(
        loaded.predict_groups_proba(made.X, words), model.predict_groups_proba(made.X, words)
    )
