"""Seeds: every random choice is a function of one seed and of what the choice is for."""

from __future__ import annotations

import hashlib


def derived_seed(*parts: int | str) -> int:
    """A 63-bit seed from several numbers, equal on every machine: the source of all random choices."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
