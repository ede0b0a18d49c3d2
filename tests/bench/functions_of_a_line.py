"""Print which functions of vtrans a line passes, by file.

    python tests/bench/functions_of_a_line.py [LINE]

The command runs in this process with the shipped model, and gets the line once it waits for it. Lambdas, comprehensions
and the bodies of modules and classes do not count.
"""

import inspect
import os
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType

import vtrans
from vtrans.cli import main

PACKAGE = f"{Path(vtrans.__file__).parent}{os.sep}"
LINE = sys.argv[1] if len(sys.argv) > 1 else "A dog runs in the park."
called: dict[bool, set[CodeType]] = {False: set(), True: set()}  # whether the command has the line
given = threading.Event()


def count(frame: FrameType, event: str, _: object) -> None:
    code = frame.f_code
    if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<"):
        called[given.is_set()].add(code)


def give(pipe: int) -> None:
    before = -1
    while before != len(called[False]):  # a command that calls nothing new for two seconds waits for its line
        before = len(called[False])
        time.sleep(2)
    given.set()
    os.write(pipe, f"{LINE}\n".encode())
    os.close(pipe)


if __name__ == "__main__":
    reader, writer = os.pipe()
    os.dup2(reader, sys.stdin.fileno())
    threading.Thread(target=give, args=(writer,)).start()
    threading.setprofile(count)
    sys.setprofile(count)
    sys.argv = ["vtrans", "translate", "--model", "en-de", "--threads", "1"]
    try:
        main()
    finally:
        sys.setprofile(None)
        files = defaultdict[str, list[str]](list)
        for code in called[True]:
            if code.co_filename.startswith(PACKAGE):
                files[code.co_filename.removeprefix(PACKAGE)].append(code.co_qualname)
        for file, names in sorted(files.items()):
            print(f"{file}: {', '.join(sorted(names))}")
        print(f"{sum(map(len, files.values()))} functions in {len(files)} files")
