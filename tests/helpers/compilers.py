"""The C++ compiler of this machine."""

import os
import shlex
import shutil

import pytest

COMPILER = shutil.which(shlex.split(os.environ.get("CXX") or "g++")[0])
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="a C++ compiler is not installed: apt-get install g++")
