"""Counts the lines that keep the numbers of their source: `python tests/bench/kept_numbers.py SRC TGT`.

It imports nothing of vtrans, so that it judges the check of numbers from outside. A line is kept if both sides have the
same digits in any order and with any marks, whole numbers or runs of digits.
"""

import re
import sys
from pathlib import Path

NUMBER = re.compile(r"\d+(?:[.,:/' \u00a0\u202f-]?\d+)*")


def digits(line: str, pattern: str) -> list[str]:
    """Returns the digits of what matches, sorted, in ASCII and without leading zeros."""
    found = (re.sub(r"\D", "", number) for number in re.findall(pattern, line))
    return sorted(str(int(number)) if len(number) < 30 else number for number in found)


def main() -> None:
    src, tgt = (Path(name).read_text(encoding="utf-8").split("\n") for name in sys.argv[1:3])
    pairs = [pair for pair in zip(src, tgt, strict=True) if re.search(r"\d", "".join(pair))]
    kept = sum(any(digits(a, p) == digits(b, p) for p in (NUMBER.pattern, r"\d+")) for a, b in pairs)
    invented = sum(bool({*digits(b, r"\d+")} - {*digits(a, r"\d+")}) for a, b in pairs)
    share = 100 * kept / max(1, len(pairs))
    print(f"{len(pairs)} lines with digits: {kept} keep their numbers ({share:.1f}%), {invented} have others")


if __name__ == "__main__":
    main()
