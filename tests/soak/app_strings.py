"""Translates strings of apps with the shipped model, and reads the results with translate-toolkit.

    python tests/soak/app_strings.py

translate-toolkit is installed from PyPI into an environment of its own: its license, the GPL, is not that of vtrans. It
must find the same strings in the source and the result, with the same placeholders, and a translation of each. It reads
no string catalogues of Xcode. The exit code is 1 if a file differs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from vtrans.documents.placeholders import placeholders

QT = "<message numerus='{}'><source>{}</source><translation type='unfinished'>{}</translation></message>"
FORMS = "<numerusform></numerusform><numerusform></numerusform>"
FILES = {
    "nested.json": '{"menu": {"open": "Open the door.", "dogs": ["A big dog", "Two dogs"]}, "n": 1.50, "b": true}',
    "i18next.json": '{"dog_one": "{{count}} dog", "dog_other": "{{count}} dogs", "hi": "Hello <1>{{name}}</1>, $t(x)"}',
    "app.arb": '{"@@locale": "en", "hi": "Hello {name}!", "@hi": {"description": "A greeting"}, '
    '"n": "I see {n, plural, =0 {no dogs} one {# dog} other {# dogs}}."}',
    "strings.xml": "<?xml version='1.0' encoding='utf-8'?>\n<resources "
    "xmlns:xliff='urn:oasis:names:tc:xliff:document:1.2'>\n"
    "<string name='a'>It\\'s \\\"late\\\".\\nGo!</string>\n<string name='b'>A <b>big</b> dog &amp; a cat</string>\n"
    "<string name='c'>Hello <xliff:g id='n'>%1$s</xliff:g>, how are you?</string>\n"
    "<string-array name='d'><item>Today</item><item>Tomorrow</item></string-array>\n<plurals name='e'>"
    "<item quantity='one'>%d dog</item><item quantity='other'>%d dogs</item></plurals>\n</resources>\n",
    "Localizable.strings": '/* A "b" */\n"a" = "The \\"big\\" dog.\\nThe cat.";\n/* c */\n"b" = "%@ has %d dogs";\n',
    "qt.ts": "<?xml version='1.0' encoding='utf-8'?>\n<!DOCTYPE TS>\n<TS version='2.1' language='de_DE'><context>"
    f"<name>Main</name>{QT.format('no', '&amp;Open the door', '')}{QT.format('no', '%1 &lt;b&gt;dogs&lt;/b&gt;', '')}"
    f"{QT.format('yes', '%n dog(s)', FORMS)}</context></TS>\n",
}
PROGRAM = """
import json, sys
from pathlib import Path
from translate.storage.aresource import AndroidResourceFile
from translate.storage.jsonl10n import ARBJsonFile, I18NextV4File, JsonNestedFile
from translate.storage.properties import propfile
from translate.storage.ts2 import tsfile

class StringsFile(propfile):
    def __init__(self):
        super().__init__(personality="strings-utf8")

READERS = {
    "nested.json": JsonNestedFile, "i18next.json": I18NextV4File, "app.arb": ARBJsonFile,
    "strings.xml": AndroidResourceFile, "Localizable.strings": StringsFile, "qt.ts": tsfile,
}
found = {}
for name, reader in READERS.items():
    file = reader()
    file.parse(Path(sys.argv[1], name).read_bytes())
    units = [unit for unit in file.units if unit.istranslatable()]
    texts = [unit.value if reader is StringsFile else unit.target for unit in units]
    found[name] = [[unit.getid(), getattr(text, "strings", [text])] for unit, text in zip(units, texts)]
print(json.dumps(found))
"""


def read_by_toolkit(python: Path, folder: Path) -> dict[str, list[tuple[str, list[str]]]]:
    """Returns the names of the strings of each file in a folder, each with its texts."""
    done = subprocess.run([python, "-c", PROGRAM, folder], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, list[tuple[str, list[str]]]] = json.loads(done.stdout)
    return found


def differences(name: str, source: list[tuple[str, list[str]]], result: list[tuple[str, list[str]]]) -> list[str]:
    """Returns what is wrong in a result."""
    if [key for key, _ in source] != [key for key, _ in result]:
        return [f"{name}: the strings are {result}, and were {source}"]
    wrong = []
    for (key, texts), (_, made) in zip(source, result, strict=True):
        texts = [key.removeprefix("Main")] * len(made) if name == "qt.ts" else texts
        equal = len(texts) == len(made) and all(
            new and new != old and placeholders(new) == placeholders(old)
            for old, new in zip(texts, made, strict=True)
            if isinstance(old, str) and any(map(str.isalpha, old))
        )
        wrong += [] if equal else [f"{name}, {key}: {texts} became {made}"]
    return wrong


def main() -> int:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        venv.create(folder / "toolkit", with_pip=True)
        python = folder / "toolkit/bin/python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "translate-toolkit", "lxml"], check=True)
        (folder / "source").mkdir()
        for name, content in FILES.items():
            (folder / "source" / name).write_text(content, encoding="utf-8")
        command = [sys.executable, "-m", "vtrans", "translate", str(folder / "source"), "-o", str(folder / "result")]
        subprocess.run([*command, "--model", "en-de", "--quiet"], check=True)
        source, result = (read_by_toolkit(python, folder / part) for part in ("source", "result"))
        wrong = [line for name in FILES for line in differences(name, source[name], result[name])]
        for name in FILES:
            print(f"{name}: {len(result[name])} strings, such as {result[name][-1]}")
    print("\n".join(wrong) or "All files have the same strings, translated.")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
