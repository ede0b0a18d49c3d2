"""`vtrans calibrate`, and what `vtrans translate` does with its result."""

from pathlib import Path

from cli_runner import SENTENCE, Run
from conftest import TRAIN_PAIRS

from vtrans.apps.documents.memory import Memory
from vtrans.storage.run_folder import RunFolder
from vtrans.text.languages import Languages

PO = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "a dog"\nmsgstr ""\n'


def test_the_confidence_of_translations(run_cli: Run, run_copy: RunFolder, tmp_path: Path) -> None:
    words = ("--model", run_copy.path, "--device", "cpu")
    src, ref, po, text = (tmp_path / name for name in ("src", "ref", "a.po", "a.txt"))
    src.write_text("".join(f"{pair[0]}\n" for pair in TRAIN_PAIRS * 2), encoding="utf-8")
    done = run_cli("translate", "--confidence", *words, stdin=SENTENCE)
    assert (done.code, done.out) == (2, b"")
    assert "vtrans calibrate" in done.err

    lines = run_cli("translate", "--raw", "--input", src, *words).out.decode().split("\n")[:-1]
    ref.write_text("x\n", encoding="utf-8")
    assert run_cli("calibrate", src, ref, *words).code == 2
    ref.write_text("".join(f"{line if i % 3 else 'wrong'}\n" for i, line in enumerate(lines)), encoding="utf-8")
    done = run_cli("calibrate", src, ref, *words)
    assert done.code == 0, done.err
    assert (run_copy.path / "confidence.json").exists()
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "model.safetensors"
    link.symlink_to(run_copy.best)
    assert run_cli("calibrate", src, ref, "--model", link, "--device", "cpu").code == 0
    assert list(link.parent.iterdir()) == [link]
    assert run_cli("translate", "--confidence", "--model", link, "--device", "cpu", stdin=SENTENCE).code == 0

    done = run_cli("translate", "--confidence", *words, stdin=SENTENCE * 2)
    assert [0 < float(line.split("\t")[0]) < 1 for line in done.out.decode().split("\n")[:-1]] == [True, True]
    assert "vtrans calibrate" not in done.err
    for options, named in ((("--beam", "3"), "beam"), (("--sample",), "sampling")):
        warned = run_cli("translate", "--confidence", *options, *words, stdin=SENTENCE * 2)
        assert [named in line for line in warned.err.split("\n") if "vtrans calibrate" in line] == [True]
    done = run_cli("calibrate", src, ref, *words, "--precision", "bfloat16", "--engine", "torch")
    assert "precision" in run_cli("translate", "--confidence", *words, stdin=SENTENCE).err
    done = run_cli("translate", "--min-confidence", "1", *words, stdin=SENTENCE * 2)
    assert done.out == b"\n\n"
    assert "2 lines left" in done.err
    assert run_cli("translate", "--min-confidence", "1.5", *words, stdin=SENTENCE).code == 2
    po.write_text(PO)
    assert run_cli("translate", po, "--min-confidence", "1", *words).out == po.read_bytes()
    text.write_text("a dog\n")
    assert run_cli("translate", text, "--min-confidence", "1", *words).out == b"a dog\n"
    memory = Memory(tmp_path / "memory")
    memory.add(Languages("en", "de"), "a dog", "ein Hund")
    known = "--memory", memory.path, "--confidence", "--min-confidence", "1"
    assert run_cli("translate", *known, *words, stdin=b"a dog\na cat\n").out.startswith(b"1.000000\tein Hund\n0.")
