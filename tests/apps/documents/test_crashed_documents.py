"""A crash at any moment leaves whole documents, and the same command translates those that are missing."""

from pathlib import Path

import pytest
from cli_runner import Run
from moments import Moments, restore

from vtrans.storage.run_folder import RunFolder

DOCUMENTS = {"a.txt": "The big dog sees me.\n", "b.html": "<p>The dog.</p>\n", "inside/c.json": '{"x": "a dog"}\n'}


def test_a_crash_leaves_whole_documents_and_nothing_is_translated_twice(
    run_cli: Run, ending_run: RunFolder, tmp_path: Path
) -> None:
    source, made = tmp_path / "source", tmp_path / "made"
    for name, text in DOCUMENTS.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)

    def translate() -> str:
        done = run_cli("translate", ending_run.path, source, "-o", made, "--processes", "1")
        assert done.code == 0, done.err
        return str(done.err)

    with pytest.MonkeyPatch.context() as patch:
        moments = Moments(patch, made)
        translate()
    whole = {name: (made / name).read_bytes() for name in DOCUMENTS}
    assert sorted(path.name for path in made.rglob("*")) == ["a.txt", "b.html", "c.json", "inside"]
    moment_of = {}
    for moment in moments.recorded:
        files = [path for path, raw in moment.items() if raw is not None]
        visible = [path for path in files if not any(part[0] == "." for part in path.parts)]
        assert all(whole[str(path)] == moment[path] for path in visible)
        moment_of[len(visible)] = moment
    assert sorted(moment_of) == [0, 1, 2, 3]
    for number, moment in moment_of.items():
        restore(moment, made)
        assert (f"{number} document" in translate()) == (0 < number < 3)
        assert {name: (made / name).read_bytes() for name in DOCUMENTS} == whole
