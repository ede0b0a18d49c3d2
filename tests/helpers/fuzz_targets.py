"""The readers that fuzzing gives arbitrary bytes: what each may raise, laws that hold for what it reads, and seeds.

`soak/fuzz.py` runs them with atheris; `test_fuzz.py` runs them with the inputs in `fuzz/`, which fuzzing found.
"""

import fuzz_documents
import fuzz_imports
import fuzz_models
import fuzz_text
from fuzzing import TARGETS, scratch

__all__ = ["TARGETS", "fuzz_documents", "fuzz_imports", "fuzz_models", "fuzz_text", "scratch"]
