"""Makes and reads zip files with XML inside, such as Word files."""

import io
import zipfile

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
BODY = f'<?xml version="1.0"?><w:document xmlns:w="{WORD}"><w:body>%s</w:body></w:document>'


def zipped(**members: str | bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name.replace("__", "/").replace("_", "."), content)
    return made.getvalue()


def docx(body: str, **members: str | bytes) -> bytes:
    return zipped(**{"word__document_xml": BODY % body, "word__media__a_png": b"\x89PNG", **members})


def member(content: bytes, name: str) -> str:
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        assert file.testzip() is None
        return file.read(name).decode()
