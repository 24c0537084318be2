"""Acts on a module as soon as it is imported, however late that is."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    Undo = Callable[[], None]

__all__ = ["when_imported"]


def when_imported(name: str, act: Callable[[ModuleType], Undo]) -> Undo:
    """Call `act` with a module once it is imported, now if it is already.

    Returns:
        What takes back the wish, and what `act` did: it calls what `act` returned.
    """
    module = sys.modules.get(name)
    if module is not None:
        return act(module)
    undo: list[Undo] = []
    finder = _Finder(name, lambda loaded: undo.append(act(loaded)))
    sys.meta_path.insert(0, finder)

    def take_back() -> None:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        while undo:
            undo.pop()()

    return take_back


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module as the other finders do, and tells when it has been loaded."""

    def __init__(self, name: str, loaded: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._loaded = loaded

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target) if finder is not self else None
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader, self._loaded)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    def __init__(self, real: Any, loaded: Callable[[ModuleType], None]) -> None:
        self._real = real
        self._loaded = loaded

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._real.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        self._loaded(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
