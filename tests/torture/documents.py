"""Documents with one value or one byte too strange: of models, runs, audits and jobs, and YAML."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from pyro_fairvae.storage.model_folder import DOCUMENT, HEAD
from tests.torture.cases import Case, drawn
from tests.torture.forked import command
from tests.torture.grids import grid
from tests.torture.subjects import QUIET, TRAIN, Subjects, copied
from tests.torture.verdict import wrong_with
from tests.torture.words import json_values, words

DEEP = 100_000  # brackets
BROKEN = (
    b"", b"\x00", b"{", b"null", b"[]", b"{}", b"\xff\xfe{}", b"\xef\xbb\xbf{}", b'{"a": NaN}',
    b'{"a": 1, "a": 2}', b"[" * DEEP, b'{"a":' * DEEP, b"1" * 10_000, b'"\\ud800"', b'{"\\ud800": 1}',
    b'{"format": "pyro_fairvae model", "version": 1}', b'{"format": "pyro_fairvae model", "version": 1e99}',
)  # fmt: skip
LAUGHS = "".join(
    f"{letter}: &{letter} [{','.join([f'*{before}' if before else 'x'] * 9)}]\n"
    for before, letter in zip(["", *"abcdefg"], "abcdefgh", strict=True)
)
YAML = (
    "", "-", "- 1", "? ", "{", "[", ": :", "a: b: c", "&a [*a]", "&a {a: *a}", "*a", "!!binary x",
    "!!set {a, b}",
    "!!python/object/apply:os.getcwd []", "!!python/name:os.getcwd", "!!timestamp 2020-01-01",
    "2020-01-01: 1", "1: 2", "null: 1", "epochs: 2020-13-01", "epochs: 1_0", "epochs: 0o7", "epochs: .inf",
    "epochs: .nan", "? [a]\n: 1", "lambdas: [[1]]", "lambdas: {a: 1}", "<<: {epochs: 1}", "<<: 1", "a: !x 1",
    "\t", "a:\tb", "\x00", "%YAML 9.9", "--- 1\n--- 2", "a: |\n  x", "[" * 10_000, "a: " * 300, "- " * 10_000,
    "{preset: truthful}", "{preset: 1}", "{rows: {}}", "{rows: {every: {}}}", "{rows: {every: {own: -1}}}",
    "{rows: {every: {own: 1, other: .inf}}}", "{rows: {0: {unavailable: 1e308, own: 1e308}}}",
    "{preset: informed, strength: 1e999}", "{preset: truthful, depends_on: [x, x]}",
    "{preset: truthful, given: [label, label]}", "{preset: truthful, shrinkage: 0}",
    "{preset: truthful, strength: [1]}", LAUGHS,
)  # fmt: skip


@dataclass(frozen=True)
class Change:
    """A value put somewhere into a document, taken away from it, or bytes in place of all of it."""

    kind: str
    place: int
    value: Any

    def of(self, document: Any) -> Any:
        changed = copy.deepcopy(document)
        every = list(_places(changed))
        holder, key = every[self.place % len(every)]
        if self.kind == "replace":
            holder[key] = self.value
        elif self.kind == "remove":
            del holder[key]
        elif self.kind == "add" and isinstance(holder, dict):
            holder[str(self.value)[:99]] = self.value
        elif self.kind == "repeat" and isinstance(holder[key], list):
            holder[key] = holder[key] * 2
        elif self.kind == "deepen":
            for _ in range(self.place % 300):
                holder[key] = [holder[key]]
        return changed


def _places(content: Any) -> list[tuple[Any, Any]]:
    """Every value of a document, as what holds it and its key there."""
    keys = (
        list(content)
        if isinstance(content, dict)
        else range(len(content))
        if isinstance(content, list)
        else ()
    )
    return [(content, key) for key in keys] + [place for key in keys for place in _places(content[key])]


def _bytes_of(document: Any) -> bytes:
    """JSON, with lone surrogates escaped and numbers of any size."""
    return json.dumps(document).encode()


def _sealed(folder: Path, content: bytes) -> bytes:
    """A model's document that vouches for itself, as somebody could write who means harm."""
    document = json.loads(content)
    if isinstance(document, dict) and isinstance(document.get("sha256"), dict):
        body = {key: value for key, value in document.items() if key not in HEAD}
        document["sha256"][DOCUMENT] = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        content = _bytes_of(document)
    return content


@dataclass(frozen=True)
class Document:
    """A document of a folder, and commands that read it there."""

    name: str
    of: Callable[[Subjects], Path]
    readers: tuple[Callable[[Path, Subjects], list[str | Path]], ...]
    seal: bool = False


DOCUMENTS = {
    "network": Document(DOCUMENT, lambda subjects: subjects.network, (
        lambda folder, subjects: ["predict", folder, subjects.people, "--groups"],
        lambda folder, subjects: ["audit", folder, subjects.people],
        lambda folder, subjects: ["report", folder],
        lambda folder, subjects: ["inspect", folder],
        lambda folder, subjects: ["decide", folder, subjects.people, "--draws", "3"],
    ), seal=True),
    "trees": Document(DOCUMENT, lambda subjects: subjects.trees, (
        lambda folder, subjects: ["predict", folder, subjects.people, "--groups"],
        lambda folder, subjects: ["report", folder],
        lambda folder, subjects: ["inspect", folder, "--suggest"],
    ), seal=True),
    "run": Document(DOCUMENT, lambda subjects: subjects.run, (
        lambda folder, subjects: ["decide", folder, "--draws", "3"],
        lambda folder, subjects: ["report", folder],
        lambda folder, subjects: ["inspect", folder, "--lambda", "1"],
    ), seal=True),
    "config": Document("config.json", lambda subjects: subjects.run, (
        lambda folder, subjects: ["decide", folder, "--draws", "3"],
        lambda folder, subjects: ["inspect", folder],
        lambda folder, subjects: ["train", "--config", folder / "config.json", *QUIET, "--out", "again"],
    )),
    "audit": Document("audit.json", lambda subjects: subjects.network, (
        lambda folder, subjects: ["report", folder],
    )),
    "job": Document("job.json", lambda subjects: subjects.grid, ()),
}  # fmt: skip

change = st.builds(
    Change,
    st.sampled_from(["replace", "replace", "replace", "remove", "add", "repeat", "deepen"]),
    st.integers(0, 10**6),
    json_values,
)
broken = st.one_of(st.sampled_from(BROKEN), st.binary(max_size=30))
in_json = st.tuples(
    st.sampled_from(sorted(DOCUMENTS)),
    st.one_of(change, change, change, broken),
    st.integers(0, 99),
    st.booleans(),
)
in_yaml = st.tuples(
    st.sampled_from(["--config", "show", "--prior-a", "--set", "--truth"]),
    st.one_of(
        st.sampled_from(YAML), json_values.map(lambda value: yaml.safe_dump(value, allow_unicode=True)),
        st.tuples(st.sampled_from(["epochs", "prior_a", "lambdas", "group", "truth", "risk", "out",
        "seed"]), json_values)
        .map(lambda pair: yaml.safe_dump(dict([pair]))), words,
    ),
)  # fmt: skip


def document_cases(subjects: Subjects, count: int, seed: int) -> list[Case]:
    subjects.make("few", "people")
    cases = []
    for name, changed, which, sealed in drawn(in_json, count - count // 3, seed, "json"):
        DOCUMENTS[name].of(subjects)  # made before the processes that read it
        cases.append(
            Case(
                f"{name} {'sealed ' * sealed}{changed!r}"[:600],
                lambda folder, *, n=name, c=changed, w=which, s=sealed: _tried(
                    subjects, DOCUMENTS[n], c, w, s, folder
                ),
            )
        )
    for where, text in drawn(in_yaml, count // 3, seed, "yaml"):
        cases.append(
            Case(
                f"{where} {text!r}"[:600],
                lambda folder, *, w=where, t=text: _tried_yaml(subjects, w, t, folder),
            )
        )
    return cases


def _tried(
    subjects: Subjects, document: Document, changed: Change | bytes, which: int, seal: bool, folder: Path
) -> str:
    copy_of = copied(document.of(subjects), folder)
    path = (
        copy_of / document.name if document.readers else sorted((copy_of / "jobs").glob("*.json"))[which % 4]
    )
    content = changed if isinstance(changed, bytes) else _bytes_of(changed.of(json.loads(path.read_bytes())))
    if isinstance(changed, Change) and seal and document.seal:
        content = _sealed(copy_of, content)
    path.write_bytes(content)
    if not document.readers:
        return wrong_with(grid(copy_of, folder))
    arguments = document.readers[which % len(document.readers)](copy_of, subjects)
    return wrong_with(command(arguments, folder))


def _tried_yaml(subjects: Subjects, where: str, text: str, folder: Path) -> str:
    if where == "show":
        return wrong_with(command(["priors", "show", "--dataset", "synthetic", "--", text], folder))
    if where == "--set":
        few = [
            "--label",
            "hired",
            "--group",
            "sex",
            *QUIET,
            "--trunk",
            "mlp",
            "--lambdas",
            "0",
            "--epochs",
            "1",
        ]
        return wrong_with(
            command(["fit", subjects.few, *few, "--out", "model", "--set", f"prior_a={text}"], folder)
        )
    if where == "--config":
        (folder / "config.yaml").write_text(text, errors="replace")
        return wrong_with(command(["train", *TRAIN, "--config", "config.yaml", "--out", "run"], folder))
    return wrong_with(command(["train", *TRAIN, f"{where}={text}", "--out", "run"], folder))
