"""User-defined classes in Python files, which recipes and options name as "mine.py:MyTransformer"."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import CodeType
from typing import TypeVar

from vtrans.system.errors import InputError

T = TypeVar("T")


def class_of(settings: object, key: str, base: type[T]) -> type[T]:
    """Returns the class that the setting `key` names: a subclass of `base`, or `base` for the key's default. Raises
    InputError like `own_class`."""
    name = getattr(settings, key)
    return base if name == getattr(type(settings), key) else own_class(name, base, key)


def is_own(value: object) -> bool:
    """Returns whether a value names a user-defined class in a file, such as "mine.py:Accuracy"."""
    return isinstance(value, str) and ".py:" in value


def own_class(name: str | type[T], base: type[T], option: str) -> type[T]:
    """Returns the subclass of `base` that an option names; a class is returned unchanged. Executes the file once per
    process. Raises InputError if the name is invalid, the file fails, or the class is missing."""
    if isinstance(name, type):
        return name
    file, _, attribute = name.rpartition(":")
    if not file.endswith(".py"):
        raise InputError(f"`{option}` must name a class in a file, such as mine.py:{base.__name__}, got {name}.")
    known = f"{Path(file).stem}_{own_digest(file)}"
    if known not in sys.modules:
        loader = _TextLoader(known, str(Path(file).absolute()))
        module = module_from_spec(ModuleSpec(known, loader, origin=loader.path))
        module.__file__ = loader.path
        sys.modules[known] = module  # before executing it, because a dataclass looks up its module
        try:
            loader.exec_module(module)
        except (Exception, SystemExit) as error:  # user code may raise anything
            del sys.modules[known]
            raise InputError(f"{file} cannot be run ({type(error).__name__}: {error}); correct the file.") from error
    found = getattr(sys.modules[known], attribute, None)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise InputError(f"`{option}` = {name} needs a class {attribute} in {file}, a subclass of {base.__name__}.")
    return found


class _TextLoader(SourceFileLoader):
    """Executes exactly the source text that was hashed. Python's own loader may run stale bytecode, and writes
    bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def own_digests(names: Iterable[str]) -> dict[str, str]:
    """Returns the `own_digest` of the file of each name of a user-defined class. Other names are skipped."""
    return {name: own_digest(name.rpartition(":")[0]) for name in names if ":" in name}


def own_digest(file: str | Path) -> str:
    """Returns the first 16 hexadecimal digits of a user file's SHA-256. Raises InputError if it cannot be read."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise InputError(f"the code {file} cannot be read: {error.strerror}; give the path of the file.") from None
