"""The code of docs/change-the-model.md, by the names of its files."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "change-the-model.md").read_text(encoding="utf-8")
EXERCISES = dict(re.findall(r'^```python title="(\w+\.py)"\n(.*?)^```', PAGE, re.MULTILINE | re.DOTALL))
