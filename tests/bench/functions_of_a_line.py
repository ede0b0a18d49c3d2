"""Print how many functions of vtrans a line passes, and in how many files.

    python tests/bench/functions_of_a_line.py [--line TEXT]

Runs `vtrans translate` in this process, gives it a line once it waits for it, and counts the functions that are called
after that, and those called in all. Lambdas, comprehensions and the bodies of modules and classes are left out.
"""

import argparse
import inspect
import os
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType

import vtrans
from vtrans.cli import main

PACKAGE = Path(vtrans.__file__).parent
calls = 0
called: dict[bool, set[CodeType]] = {False: set(), True: set()}  # before and after the command gets the line
given = threading.Event()


def count(frame: FrameType, event: str, _: object) -> None:
    global calls
    calls += 1
    code = frame.f_code
    is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
    if event == "call" and is_function and code.co_filename.startswith(f"{PACKAGE}{os.sep}"):
        called[given.is_set()].add(code)


def give(line: str, pipe: int) -> None:
    before = -1
    while before != calls:  # a command that calls nothing for a second waits for its line
        before = calls
        time.sleep(1)
    given.set()
    os.write(pipe, f"{line}\n".encode())
    os.close(pipe)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--line", default="The dog runs. THE CAR is Red \U0001f355 {name}.")
    reader, writer = os.pipe()
    os.dup2(reader, sys.stdin.fileno())
    threading.Thread(target=give, args=(parser.parse_args().line, writer)).start()
    threading.setprofile(count)
    sys.setprofile(count)
    sys.argv = ["vtrans", "translate", "--model", "tatoeba-en-de", "--threads", "1"]
    try:
        main()
    finally:
        sys.setprofile(None)
        for title, codes in {"with the line": called[True], "in all": called[False] | called[True]}.items():
            print(f"{title}: {len(codes)} functions in {len({code.co_filename for code in codes})} files")
