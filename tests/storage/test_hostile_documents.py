"""Every place of every document made wrong in every way: one clear line, and never another error."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from pyro_fairvae.auditing import Audit
from pyro_fairvae.base.documents import read_document
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.options import build
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.schema.documents import PosteriorDocument, ResultsDocument
from pyro_fairvae.storage.model_folder import DOCUMENT, DRAWS, HEAD, TENSORS
from pyro_fairvae.studies.config import TrainConfig, read_options
from tests.support.user_tables import made_table, tiny

VERSION_1 = Path(__file__).parent / "version_1"
WRONG: tuple[Any, ...] = (None, True, -1, 10**30, 1e300, "", "word", [], [None], {}, {"a": 1})
BYTES = (
    b"", b"\xff\xfe\x00", b"\x00" * 100, b"[" * 50_000, b'{"a":' * 50_000, b"NaN", b"[1, 2", b'{"a": 1}{}',
    b"1" * 5000, b'"\\ud800"', b'{"a": 1, "a": 2}', "\ufeff{}".encode(),
)  # fmt: skip
AUDIT = {
    "metrics": [
        {
            "metric": "deo", "estimate": 0.1, "low": 0.0, "high": 0.2, "stated_estimate": 0.1,
            "stated_low": 0.0, "stated_high": None, "bound_low": 0.0, "bound_high": 1.0,
        }
    ],
    "rates": [
        {
            "rate": "P(Ŷ = 1)", "group": "f", "estimate": 0.1, "low": 0.0, "high": 0.2,
            "stated_estimate": 0.1, "stated_low": 0.0, "stated_high": 0.2, "stated_rows": 4,
        }
    ],
    "groups": [
        {
            "group": "f", "stated": 4, "withhold": 0.1, "withhold_low": 0.0, "withhold_high": 0.2,
            "withheld": 3.0,
        }
    ],
    "rows": {"rows": 10, "stated": 7, "withheld": 3, "unlabelled": 0},
    "depends_on": "group",
    "confidence": 0.9,
    "notes": ["a note"],
}  # fmt: skip
RESULTS = {
    "members": [{"lambda": 0.0, "val": {"error": 0.1}, "test": {"error": None}, "group_accuracy": 0.5}],
    "metric": "deo",
    "selected": 0,
    "imputation": {"group": {"outcome": {"accuracy": 0.5}}},
}


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a document has a value; of a long list the first alone."""
    yield path
    if isinstance(content, dict):
        for key, value in content.items():
            yield from places(value, (*path, key))
    elif isinstance(content, list) and content:
        yield from places(content[0], (*path, 0))


def changes(document: Any) -> Iterator[Any]:
    """Copies of a document, each with one value changed or taken away, or one field too many."""
    for path in places(document):
        for wrong in WRONG:
            changed = copy.deepcopy(document)
            if not path:
                yield wrong
                continue
            inside = changed
            for key in path[:-1]:
                inside = inside[key]
            inside[path[-1]] = wrong
            yield changed
        if path:
            lacking = copy.deepcopy(document)
            inside = lacking
            for key in path[:-1]:
                inside = inside[key]
            del inside[path[-1]]
            yield lacking
            if isinstance(inside, dict):
                more = copy.deepcopy(document)
                inside = more
                for key in path[:-1]:
                    inside = inside[key]
                inside["nonsense"] = 1
                yield more


def refused(read: Any, *arguments: Any) -> bool:
    """Whether the reader refuses what it is given, in one line; anything else that it raises is a failure."""
    message = ""
    try:
        read(*arguments)
    except InputError as reason:
        message = str(reason)
    assert "\n" not in message
    return bool(message)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model"
    FairSSVAEClassifier.load(VERSION_1, device="cpu").save(path)
    return path


def seal(folder: Path, document: Any) -> None:
    """Write a document that vouches for itself, as somebody could who means harm."""
    if isinstance(document, dict):
        body = {key: value for key, value in document.items() if key not in HEAD}
        digests = {DOCUMENT: hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()}
        for name in (TENSORS, DRAWS):
            if (folder / name).exists():
                digests[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        document = document | {"sha256": digests}
    (folder / DOCUMENT).write_text(json.dumps(document))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("version", [1, 2])
def test_a_crafted_model_is_refused_or_loads(version: int, folder: Path, tmp_path: Path) -> None:
    source = VERSION_1 if version == 1 else folder
    for name in (DOCUMENT, TENSORS, DRAWS):
        if (source / name).exists():
            (tmp_path / name).write_bytes((source / name).read_bytes())
    document = json.loads((tmp_path / DOCUMENT).read_text())
    document["fit"]["history"] = document["fit"]["history"][:1]
    document["posterior"]["members"] = document["posterior"]["members"][:1]
    outcomes = []
    described = {key: value for key, value in document.items() if key != "sha256"}
    for changed in islice(changes(described), 0, None, 9):  # all of them take minutes, and pass
        seal(tmp_path, changed)
        outcomes.append(refused(FairSSVAEClassifier.load, tmp_path, "cpu"))
    assert len(outcomes) > 150
    assert share_of(outcomes) > 0.5
    seal(tmp_path, document)
    assert not refused(FairSSVAEClassifier.load, tmp_path, "cpu")


@pytest.mark.filterwarnings("ignore")
def test_crafted_proxies_are_refused_or_load(tmp_path: Path) -> None:
    made = made_table(60)
    X = made.X.assign(word=[["a", "b", None][k % 3] for k in range(60)])
    tiny(epochs=1, proxies=["x0", "word"]).fit(X, made.y_obs, made.a_obs).save(tmp_path, overwrite=True)
    document = json.loads((tmp_path / DOCUMENT).read_text())
    outcomes = []
    for proxies in changes(document["proxies"]):
        seal(tmp_path, document | {"proxies": proxies})
        outcomes.append(refused(FairSSVAEClassifier.load, tmp_path, "cpu"))
    assert share_of(outcomes) > 0.5
    wide = copy.deepcopy(document["proxies"])
    wide["categories"][0]["values"] = list(map(str, range(100_000)))
    seal(tmp_path, document | {"proxies": wide})
    with pytest.raises(InputError, match=r"describes a network with \d+ weights or more"):
        FairSSVAEClassifier.load(tmp_path, "cpu")


def share_of(outcomes: list[bool]) -> float:
    return sum(outcomes) / len(outcomes)


@pytest.mark.parametrize("content", BYTES, ids=lambda content: repr(content[:8]))
def test_broken_bytes_are_refused_by_every_reader(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    path.write_bytes(content)
    for schema in (ResultsDocument, PosteriorDocument):
        assert refused(read_document, path, schema, "a document")
    assert refused(Audit.read, path)
    assert refused(lambda: build(TrainConfig, read_options(path)))
    yaml = path.with_suffix(".yaml")
    yaml.write_bytes(content)
    refused(lambda: build(TrainConfig, read_options(yaml)))


def test_a_crafted_audit_is_refused_or_shown(tmp_path: Path) -> None:
    path = tmp_path / "audit.json"

    def read_and_show() -> None:
        str(Audit.read(path))

    path.write_text(json.dumps(AUDIT))
    assert not refused(read_and_show)
    outcomes = []
    for changed in changes(AUDIT):
        path.write_text(json.dumps(changed))
        outcomes.append(refused(read_and_show))
    assert share_of(outcomes) > 0.5


def test_crafted_results_are_refused_or_read(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(RESULTS))
    assert not refused(read_document, path, ResultsDocument, "results")
    outcomes = []
    for changed in changes(RESULTS):
        path.write_text(json.dumps(changed))
        outcomes.append(refused(read_document, path, ResultsDocument, "results"))
    assert share_of(outcomes) > 0.5


def test_a_crafted_config_is_refused_or_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    config = TrainConfig().flat()
    for changed in changes(config):
        path.write_text(json.dumps(changed))
        refused(lambda: build(TrainConfig, read_options(path)))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", [TENSORS, DRAWS])
def test_weights_and_draws_that_are_not_finite_are_refused(
    name: str, value: float, folder: Path, tmp_path: Path
) -> None:
    if not (folder / name).exists():
        folder = VERSION_1
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    source = tmp_path / name
    tensors = load_tensors(source.read_bytes()) if source.exists() else {"guide/a/0": torch.ones(1, 2, 1, 2)}
    places = [key for key, tensor in tensors.items() if tensor.is_floating_point()]
    for place in (places[0], places[-1]):
        changed = {key: tensor.clone() for key, tensor in tensors.items()}
        changed[place].view(-1)[-1] = value
        source.write_bytes(save_tensors(changed))
        seal(tmp_path, json.loads((tmp_path / DOCUMENT).read_text()))
        with pytest.raises(InputError, match="finite"):
            FairSSVAEClassifier.load(tmp_path, "cpu")


@pytest.mark.parametrize("name", ["checkpoint", "device", "callback", "random_state"])
def test_a_folder_names_no_files_and_no_devices(name: str, folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    document = json.loads((tmp_path / DOCUMENT).read_text())
    document["parameters"][name] = str(tmp_path / "victim")
    seal(tmp_path, document)
    with pytest.raises(InputError, match=f"unknown parameter '{name}'"):
        FairSSVAEClassifier.load(tmp_path, "cpu")
