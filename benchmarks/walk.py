"""How many files a reader opens from a command to what it does, counted from the source alone.

The measure: a definition is a function, a class or a name assigned at the top of a module. It uses every
definition whose name occurs in its body; names are followed through imports, and through packages that only
pass them on, to the file that defines them. A type in an annotation is not followed, as a reader need not
open it to follow the work. The count includes the files that hold a definition reached from the start, and
those between a command and the start: run/__main__.py, run/command.py and the command's own module.

  train to the loss and results.json: from train_run, which trains, evaluates and writes them
  fit to the report:                  from run of fairvae fit and run of fairvae report

Methods of an object that is passed as an argument are not followed unless its class is named in the body, so
that the count is a lower bound. Also printed: modules at the top of the package, and modules in all.

  python benchmarks/walk.py                 # this tree
  python benchmarks/walk.py OLD NEW --list  # other trees, with the files
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = "pyro_fairvae"
# Folders beside the package that are installed inside it.
FOLDERS = {"pyro_fairvae": PACKAGE, "models": f"{PACKAGE}.models", "guides": f"{PACKAGE}.guides",
           "run": f"{PACKAGE}.run"}  # fmt: skip

Definition = tuple[str, str]  # module, name


class Tree:
    """The modules of a source tree, what they define at their top, and what they import."""

    def __init__(self, root: Path) -> None:
        self.paths = {
            ".".join([package, *(part for part in _parts(path, root / folder) if part != "__init__")]): path
            for folder, package in FOLDERS.items()
            for path in sorted((root / folder).rglob("*.py"))
        }
        if not self.paths:
            raise SystemExit(f"{root} holds no {PACKAGE}.")
        sources = {module: ast.parse(path.read_text()) for module, path in self.paths.items()}
        self.definitions = {module: _definitions(source) for module, source in sources.items()}
        self.imports = {module: _imports(source) for module, source in sources.items()}

    @property
    def flat(self) -> list[str]:
        """Modules directly in the package, not in a subpackage."""
        return [module for module in self.paths if module.count(".") == 1 and not self._is_package(module)]

    def defining(self, name: str) -> Definition:
        """The one definition of a name."""
        (module,) = (module for module, defined in self.definitions.items() if name in defined)
        return module, name

    def reached(self, starts: Iterable[Definition]) -> set[Definition]:
        """The starts, and all definitions that they use, directly or through others."""
        seen: set[Definition] = set()
        waiting = list(starts)
        while waiting:
            module, name = here = waiting.pop()
            if here not in seen:
                seen.add(here)
                waiting += [
                    used for node in self.definitions[module][name] for used in self._uses(module, node)
                ]
        return seen

    def walk(self, commands: Iterable[str], starts: Iterable[Definition]) -> list[str]:
        """The modules that a reader opens from these commands to what the starts do."""
        on_the_way = {f"{PACKAGE}.run.{name}" for name in ("__main__", "command", *commands)}
        return sorted(on_the_way | {module for module, _ in self.reached(starts)})

    def _is_package(self, module: str) -> bool:
        return self.paths[module].name == "__init__.py"

    def _uses(self, module: str, node: ast.AST) -> Iterator[Definition]:
        annotations = {id(inner) for outer in _annotations(node) for inner in ast.walk(outer)}
        for inner in ast.walk(node):
            if id(inner) in annotations:
                continue
            used = None
            if isinstance(inner, ast.Name):
                used = self._follow(module, inner.id)
            elif isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
                imported = self.imports[module].get(inner.value.id)
                if imported is not None and ".".join(imported) in self.paths:  # a module's name before a dot
                    used = self._follow(".".join(imported), inner.attr)
            if used is not None:
                yield used

    def _follow(self, module: str, name: str) -> Definition | None:
        """Where a name that a module knows is defined; None outside the package, and for a module."""
        while module in self.paths:
            if name in self.definitions[module]:
                return module, name
            if name not in self.imports[module]:
                return None
            module, name = self.imports[module][name]
        return None


def _parts(path: Path, folder: Path) -> tuple[str, ...]:
    return path.relative_to(folder).with_suffix("").parts


def _definitions(source: ast.Module) -> dict[str, list[ast.stmt]]:
    """The statements at the top of a module that define a name, or change what it holds."""
    definitions: dict[str, list[ast.stmt]] = {}
    for node in source.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            definitions.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for inner in ast.walk(target):
                    if isinstance(inner, ast.Name):
                        definitions.setdefault(inner.id, []).append(node)
    return definitions


def _imports(source: ast.Module) -> dict[str, tuple[str, str]]:
    """Names that are imported, by module and name there."""
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
    for inner in ast.walk(node):
        annotation = (
            inner.returns if isinstance(inner, ast.FunctionDef) else getattr(inner, "annotation", None)
        )
        if annotation is not None:
            yield annotation


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", type=Path, nargs="*", default=[ROOT], metavar="TREE", help="source trees")
    parser.add_argument("--list", action="store_true", help="also list the files")
    arguments = parser.parse_args()
    for root in arguments.trees:
        tree = Tree(root)
        commands = [(f"{PACKAGE}.run.{name}", "run") for name in ("fit", "report")]
        walks = {
            "train to the loss and results.json": tree.walk(["train"], [tree.defining("train_run")]),
            "fit to the report": tree.walk(["fit", "report"], commands),
        }
        print(f"{root}: {len(tree.paths)} modules, {len(tree.flat)} of them flat")
        for title, modules in walks.items():
            print(f"  {title}: {len(modules)} files")
            if arguments.list:
                print("\n".join(f"    {module}" for module in modules))


if __name__ == "__main__":
    main()
