"""What a marked function's source says without being run: its docstring, what it leads to, its digest.

Followed are names that lead to definitions at the top of modules beside it or in the suite's folder. What is
looked up while the code runs (a registry, a method chosen by name) is not seen.
"""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeAlias

__all__ = ["Place", "Source", "Sources"]

_DIGITS = 12

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Place(NamedTuple):
    """A name at the top of a file."""

    file: Path
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What one function's source says.

    Attributes:
        docstring: its first line; empty where it has none.
        reaches: every definition that its own text leads to, by way of others too; itself not.
        digest: of its text, its decorators', and of all that it reaches, without comments and layout.
    """

    docstring: str
    reaches: frozenset[Place]
    digest: str


class Sources:
    """Reads modules, each once."""

    def __init__(self, *folders: Path) -> None:
        """Names of modules are looked for beside the file that imports them, and in `folders`."""
        self._folders = folders
        self._read: dict[Path, _Module | None] = {}

    def of(self, file: str, name: str, line: int) -> Source | None:
        """What the source of a marked function says; None where it cannot be read.

        Args:
            file: where it stands.
            name: the function's.
            line: of its first decorator, from 1.
        """
        path = Path(file)
        module = self._module(path)
        found = None if module is None else module.function(name, line)
        if module is None or found is None:
            return None
        texts: dict[Place, str] = {}
        self._follow(path, found, texts)
        texts.pop(Place(path, name), None)
        whole = "\n".join([ast.unparse(found), *(text for _, text in sorted(texts.items()))])
        said = (ast.get_docstring(found) or "").strip().partition("\n")[0]
        return Source(
            docstring=said,
            reaches=frozenset(texts),
            digest=hashlib.sha256(whole.encode()).hexdigest()[:_DIGITS],
        )

    def _follow(self, path: Path, node: ast.AST, texts: dict[Place, str]) -> None:
        """Add what a node's names lead to, and what that leads to."""
        module = self._module(path)
        if module is None:
            return
        for part in ast.walk(node):
            match part:
                case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in module.modules:
                    for file in self._files(path, *module.modules[owner]):
                        self._add(Place(file, name), texts)
                case ast.Name(id=name) if name in module.taken:
                    level, where, original = module.taken[name]
                    for file in self._files(path, level, where):
                        self._add(Place(file, original), texts)
                case ast.Name(id=name):
                    self._add(Place(path, name), texts)

    def _add(self, place: Place, texts: dict[Place, str]) -> None:
        module = self._module(place.file)
        if module is None or place in texts or place.name not in module.definitions:
            return
        node = module.definitions[place.name]
        texts[place] = ast.unparse(node)
        self._follow(place.file, node, texts)

    def _files(self, importer: Path, level: int, module: str) -> list[Path]:
        """Where a module may be that a file imports; the first that is there."""
        base = importer.parent
        for _ in range(level - 1):
            base = base.parent
        parts = module.split(".") if module else []
        for folder in (base,) if level else (base, *self._folders):
            for path in (folder.joinpath(*parts).with_suffix(".py"), folder.joinpath(*parts, "__init__.py")):
                if parts and path.is_file():
                    return [path]
        return []

    def _module(self, path: Path) -> _Module | None:
        if path not in self._read:
            try:
                tree = ast.parse(path.read_bytes())
            except (OSError, ValueError, SyntaxError):
                self._read[path] = None
            else:
                self._read[path] = _Module(tree)
        return self._read[path]


@dataclass
class _Module:
    tree: ast.Module
    modules: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Names that are modules, with the level and the module's name."""
    taken: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    """Names taken from modules: level, module, and what it is called there."""

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            match node:
                case ast.Import(names=names):
                    for one in names:
                        self.modules[one.asname or one.name.partition(".")[0]] = (0, one.name)
                case ast.ImportFrom(module=module, names=names, level=level):
                    for one in names:
                        inner = ".".join(filter(None, (module, one.name)))
                        # It may be a module or a name in one; what is not there leads nowhere.
                        self.modules[one.asname or one.name] = (level, inner)
                        self.taken[one.asname or one.name] = (level, module or "", one.name)
                case _:
                    pass

    @cached_property
    def definitions(self) -> dict[str, ast.stmt]:
        """What is defined or assigned at the top, by name."""
        found: dict[str, ast.stmt] = {}
        for node in self.tree.body:
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    found[name] = node
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    found[name] = node
                case _:
                    pass
        return found

    def function(self, name: str, line: int) -> _Function | None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                if first == line:
                    return node
        return None
