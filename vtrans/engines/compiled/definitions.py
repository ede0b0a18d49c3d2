"""Digests of the Python files that define what the C++ computes: the network, the plain search, the forced pass and the
loss.

definitions.txt has two digests of each file, taken when the C++ was last compared with it: of its bytes, which is fast
to check, and of its syntax tree without comments and docstrings. After a change, compare both implementations with the
tests in tests/engines; then `python -m vtrans.engines.compiled.definitions` updates the digests.
"""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path
from typing import Any

from vtrans.engines.compiled.compiler import CompilerError

PACKAGE = Path(__file__).parents[2]
DIGESTS = Path(__file__).with_suffix(".txt")


def recorded() -> dict[str, list[str]]:
    """Returns the two digests of each file, by names such as model/layers.py."""
    lines = DIGESTS.read_text(encoding="utf-8").strip().split("\n")
    return {name: digests for name, *digests in map(str.split, lines)}


def changed_files(package: Path = PACKAGE) -> list[str]:
    """Returns the files whose code has changed. Missing files, as in a bytecode installation, count as unchanged."""
    return [name for name, digests in recorded().items() if _has_changed(package / name, *digests)]


def check_definitions(*folders: str) -> None:
    """Raises CompilerError if a file in one of these folders of the package has changed."""
    if changed := [f"vtrans/{name}" for name in changed_files() if name.startswith(folders)]:
        renewed = "if both compute the same, run `python -m vtrans.engines.compiled.definitions`"
        raise CompilerError(f"the C++ code has not been compared with {', '.join(changed)} since a change; {renewed}")


def _has_changed(path: Path, whole: str, tree: str) -> bool:
    if not path.exists():
        return False
    code = path.read_bytes()
    return digest(code) != whole and digest_of_tree(code) != tree


def digest(code: bytes) -> str:
    return hashlib.sha256(code).hexdigest()[:20]


def digest_of_tree(code: bytes) -> str:
    """Returns the digest of a syntax tree, which comments, docstrings and the version of Python do not change."""
    return digest(repr(_plain(ast.parse(code))).encode())


def _plain(node: Any) -> Any:
    """Returns a syntax tree as lists, without empty fields, which differ between versions of Python."""
    if isinstance(node, list):
        # An expression that is only a constant, such as a docstring, has no effect.
        return [
            _plain(each) for each in node if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        ]
    if isinstance(node, ast.Constant):
        return repr(node.value)
    if isinstance(node, ast.AST):
        return [type(node).__name__, *([name, _plain(value)] for name, value in ast.iter_fields(node) if value)]
    return node


if __name__ == "__main__":
    codes = {name: (PACKAGE / name).read_bytes() for name in recorded()}
    lines = [f"{name} {digest(code)} {digest_of_tree(code)}\n" for name, code in codes.items()]
    DIGESTS.write_text("".join(lines), encoding="utf-8", newline="\n")
