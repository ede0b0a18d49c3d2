"""The command line: its options and help, one sentence for every fault, and streams that stay open."""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import hashlib
import itertools
import json
import lzma
import math
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from cli_runner import SENTENCE, Done, read_line, start, terminal
from conftest import TRAIN_PAIRS, write_pairs
from forking import start_python
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import vtrans
import vtrans.data.preparation.prepare
import vtrans.training.trainer
from vtrans import cli
from vtrans.config import DEFAULT_RECIPE, SearchConfig
from vtrans.data.options import DEFAULT_VOCAB_SIZE, PrepareOptions
from vtrans.data.store import DataFolder
from vtrans.errors import InputError
from vtrans.score import DEFAULT_METRICS
from vtrans.search.options import Sampling
from vtrans.storage.run_folder import RunFolder
from vtrans.text.lines import one_line

SEARCH = " ".join(f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(SearchConfig))
FLAGS = {
    "": "--debug --help --install-completion --show-completion --version",
    "prepare-bpe": "--src --tgt --pairs --valid-pairs --tag --src-lang --tgt-lang --valid-src --valid-tgt --valid-tag "
    "--out --vocab-from --vocab-size --align --alignments --fuzzy "
    "--separate --subword --normalization --character-coverage --symbol --sample --max-tokens --max-ratio "
    "--on-bad-utf8 --seed --threads --force --dry-run "
    "--json --quiet -q --help",
    "clean": "--src --tgt --src-lang --tgt-lang --on-bad-utf8 --out --without --max-words --max-ratio --forward-model "
    "--backward-model --seed --force --json --quiet -q --help",
    "train": "--data --out --recipe --set --for --init-from --fresh --compile --report --dry-run --device --processes "
    "--threads --quiet -q --help",
    "average": "--last --best --out --float16 --quiet -q --help",
    "shortlist": "--data --out --translations --frequent --quiet -q --help",
    "overlap": "--data --vocab --vocab-size --on-bad-utf8 --json --quiet -q --help",
    "doctor": "--json --help",
    "attend": "--target --to --layer --head --subwords --out --json --quiet -q --help",
    "report": "--out --sentences --data --quiet -q --help",
    "inspect": "--word --sentence --to --nearest --data --full --verify --json --help",
    "import": "--out --src-spm --tgt-spm --sample-file --on-bad-utf8 --json --quiet -q --help",
    "export": "--to --out --quantization --sample-file --engine --on-bad-utf8 --json --quiet -q --help",
    "translate": f"--model --weight --input --output -o --format --overwrite --to {SEARCH} --raw --min-confidence "
    "--no-retry --memory --prefix --constraints "
    "--glossary --protect --protect-pattern "
    "--nbest --scores --tsv --confidence --alignments --sample --top-k "
    "--top-p --epsilon --temperature --seed --mbr --mbr-samples "
    "--on-bad-utf8 --line-buffered "
    "--chunk-lines --shard --engine --processes --shortlist --precision --kernels "
    "--device --threads --json --quiet -q --help",
    "collect": "--output -o --quiet -q --help",
    "calibrate": f"--model --weight --engine --shortlist --precision --kernels --device --threads {SEARCH} --to "
    "--on-bad-utf8 --quiet -q --help",
    "logprob": "--model --weight --output -o --to --alpha --length-penalty --batch-tokens --on-bad-utf8 --device "
    "--threads "
    "--json --quiet -q --help",
    "memory": "--output -o --quiet -q --help",
    "serve": f"--pair --glossary --engine --device --threads --processes {SEARCH} --host --port --char-limit "
    "--batch-limit --req-limit --max-requests --timeout --body-timeout --file-limit --file-char-limit "
    "--api-keys --memory --cors --trusted-proxy --public-url --allowed-hosts --quiet -q --help",
    "score": "--hyp --metric --tokenize --lowercase --baseline --src --comet --on-bad-utf8 --json --quiet -q --help",
}


# Help.


def test_every_option_of_the_command_line_is_listed_here() -> None:
    group = typer.main.get_command(app := cli.app)
    assert app.registered_commands
    commands: dict[str, Any] = group.commands  # type: ignore[attr-defined]  # a group has commands
    assert set(commands) == set(FLAGS) - {""}
    for name, flags in FLAGS.items():
        command = commands[name] if name else group
        context = command.make_context(name, ["--help"], resilient_parsing=True)
        options = {option for parameter in command.get_params(context) for option in parameter.opts if option[0] == "-"}
        assert options == set(flags.split()), name


@pytest.mark.parametrize("command", FLAGS)
def test_help_is_plain_and_not_cut_off(command: str, run_cli: Callable[..., Done]) -> None:
    done = run_cli(*command.split(), "--help")
    assert (done.code, done.err) == (0, "")
    text = done.out.decode()
    assert "--help" in text
    assert not set("╭│╰") & set(text)
    assert not re.search(r"^  \S+ <", text, re.MULTILINE), "the type of an argument is shown"
    assert "..." not in text.replace("]...", "").replace("}...", ""), "a summary is cut off"
    assert set(re.findall(r"`(\w+)`", text)) <= {"auto", "serve"}, "a parameter is named instead of its flag"


def test_help_shows_the_defaults_of_the_code(run_cli: Callable[..., Done]) -> None:
    def flat(command: str) -> str:
        return " ".join(run_cli(command, "--help").out.decode().split())

    shown = flat("prepare-bpe")
    values: list[object] = [PrepareOptions.sample, PrepareOptions.max_tokens, PrepareOptions.max_ratio]
    for value in (*values, PrepareOptions.subword, PrepareOptions.normalization, PrepareOptions.out):
        assert f"[default: {value}]" in shown
    assert f"[default: {DEFAULT_VOCAB_SIZE}, or" in shown
    shown = flat("translate")
    values = [SearchConfig.beam, SearchConfig.alpha, SearchConfig.stop, SearchConfig.batch_tokens]
    for value in values:
        assert re.search(rf"\[default: (the model's setting, else )?{value}\]", shown)
    assert "Search (default: the model's setting, else as shown):" in shown
    assert f"[default: {Sampling.temperature}]" in shown
    assert re.search(rf"\[default: [^]]*\b{DEFAULT_RECIPE}\b", flat("train"))
    assert f"[default: {' and '.join(DEFAULT_METRICS)}]" in flat("score")


def test_search_options_take_their_default_from_the_model() -> None:
    commands: dict[str, Any] = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    names = {field.name for field in dataclasses.fields(SearchConfig)}
    for command in ("translate", "logprob", "serve"):
        options = [parameter for parameter in commands[command].params if parameter.name in names]
        assert {"alpha", "batch_tokens"} <= {option.name for option in options}
        for option in options:
            assert "default: the model's" in f"{option.rich_help_panel} {option.help}", option.name


def test_help_imports_nothing_heavy() -> None:
    lines = [["--help"], ["--version"], *([name, "--help"] for name in FLAGS if name)]
    program = (
        "import sys\nfrom vtrans.cli import main\n"
        f"for words in {lines}:\n"
        "    sys.argv = ['vtrans', *words]\n"
        "    try:\n        main()\n    except SystemExit as e:\n        assert e.code == 0, words\n"
        "    if heavy := {'torch', 'rich', 'numpy', 'sacrebleu', 'sentencepiece'} & sys.modules.keys():\n"
        "        sys.exit(f'{words} imports {heavy}')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_translating_does_not_import_the_compiler_of_torch(tmp_path: Path, tiny_run: RunFolder) -> None:
    """It takes longer to import than a sentence takes to translate."""
    (tmp_path / "text").write_text("A dog.\n")
    words = ["translate", "--model", str(tiny_run.path), "--device", "cpu", "--input", str(tmp_path / "text")]
    program = (
        "import sys\nfrom vtrans.cli import main\n"
        f"sys.argv = ['vtrans', *{words!r}]\n"
        "try:\n    main()\nexcept SystemExit as e:\n    assert not e.code\n"
        "sys.exit('imported' if 'torch._dynamo' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_version(run_cli: Callable[..., Done]) -> None:
    assert run_cli("--version") == Done(0, f"vtrans {vtrans.__version__}\n".encode(), "")


def test_without_a_command_the_help_is_shown(run_cli: Callable[..., Done]) -> None:
    done = run_cli()
    assert done.code == 2
    assert "command" in done.err
    assert b"prepare-bpe" in done.out


def test_help_lists_the_commands_in_panels(run_cli: Callable[..., Done]) -> None:
    panels: dict[str, set[str]] = {}
    for line in run_cli("--help").out.decode().split("\n"):
        if line.endswith(":"):
            names = panels.setdefault(line.removesuffix(":"), set())
        elif match := re.match(r"  ([a-z-]+)  ", line):
            names.add(match[1])
    assert panels["The five steps"] == {"prepare-bpe", "train", "average", "translate", "score"}
    assert {name for names in panels.values() for name in names if name[0] != "-"} == set(FLAGS) - {""}
    assert list(panels)[-1] == "Options"


def test_the_shell_gets_completions(tmp_path: Path) -> None:
    def shell(line: str, **environment: str) -> str:
        paths = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(Path(cli.__file__).parents[1])}
        words = ["bash", "-c", f'"{sys.executable}" -m vtrans {line}; exit $?']  # not exec: bash must be the parent
        done = subprocess.run(words, env=paths | environment, capture_output=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode()

    def completions(words: str) -> list[str]:
        count = str(len(words.split(" ")) - 1)
        return shell("", _VTRANS_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=count).split()

    assert completions("vtrans tra") == ["train", "translate"]
    assert completions("vtrans translate --len") == ["--length-penalty"]
    script = shell("--show-completion")
    assert "_VTRANS_COMPLETE=complete_bash" in script
    shell("--install-completion")
    assert any("_VTRANS_COMPLETE" in file.read_text() for file in tmp_path.rglob("*.sh"))


# The five commands.


def test_the_five_commands_chain(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch, run_cli: Callable[..., Done]
) -> None:
    texts = tiny_data.path.parent
    monkeypatch.chdir(tmp_path)
    sides = ("--src", texts / "train.en", "--tgt", texts / "train.de")
    valid = ("--valid-src", texts / "valid.en", "--valid-tgt", texts / "valid.de")
    done = run_cli("prepare-bpe", *sides, *valid, "--vocab-size", "320", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["options"]["vocab_size"] == 320
    assert json.loads(done.out) == json.loads((tmp_path / "data" / "data.json").read_bytes())
    again = run_cli("prepare-bpe", *sides, *valid, "--vocab-size", "320")
    assert (again.code, again.out) == (0, b"")
    assert "data" in again.err
    tiny = ("d_model=32", "d_ff=48", "heads=2", "encoder_layers=1", "decoder_layers=1")
    sets = [f"model.{value}" for value in tiny] + ["train.max_steps=4", "train.checkpoint_every=2", "train.warmup=1"]
    done = run_cli("train", *(word for value in sets for word in ("--set", value)), "--device", "cpu")
    assert (done.code, done.out) == (0, b""), done.err
    assert "device: cpu" in done.err
    resumed = run_cli("train", "--set", "train.max_steps=6", "--device", "cpu")
    assert resumed.code == 0
    assert re.search(r"resum.* 4\b", resumed.err)
    done = run_cli("average")  # the rate fell to the end of the training
    assert (done.code, done.out, done.err) == (0, b"", "run/averaged.safetensors: the checkpoint of step 6\n")
    done = run_cli("average", "--last", "3")
    assert (done.code, done.out) == (0, b"")
    assert re.fullmatch(r"run/averaged\.safetensors: .*3 checkpoints.* 2, 4, 6\n", done.err)
    source = (texts / "valid.en").read_bytes()
    done = run_cli("translate", stdin=source)
    assert done.code == 0
    assert re.match(r"model: run/averaged\.safetensors \(.*3 checkpoints.* 6\b", done.err)
    assert done.out.count(b"\n") == source.count(b"\n")
    scored = run_cli("score", texts / "valid.de", stdin=done.out)
    assert scored.code == 0
    assert [line.partition("|")[0] for line in scored.out.decode().split("\n")] == ["BLEU", "chrF2", ""]
    (tmp_path / "hyp").write_bytes(done.out)
    by_ter = run_cli("score", texts / "valid.de", "--hyp", "hyp", "--metric", "ter", "--json")
    assert [entry["name"] for entry in json.loads(by_ter.out)] == ["TER"]
    compared = run_cli("score", texts / "valid.de", "--hyp", "hyp", "--baseline", texts / "valid.de", "--json")
    assert {"p_value", "signature"} <= json.loads(compared.out)[0].keys()


def test_quiet_leaves_only_warnings(tiny_run: RunFolder, tmp_path: Path, run_cli: Callable[..., Done]) -> None:
    done = run_cli("translate", "--model", tiny_run.path, "--quiet", stdin=SENTENCE + b"a\x0bb\n")
    assert done.code == 0
    assert all(line.startswith("warning: ") for line in done.err.removesuffix("\n").split("\n"))
    assert re.search("stdin: 1 ", done.err)
    done = run_cli("average", tiny_run.step_file(20), tiny_run.step_file(30), "--out", tmp_path / "new", "--quiet")
    assert done == Done(0, b"", "")


def test_the_choice_of_a_runs_model_is_explained(run_copy: RunFolder, run_cli: Callable[..., Done]) -> None:
    def chosen() -> str:
        return run_cli("translate", "--model", run_copy.path, stdin=SENTENCE).err.partition("\n")[0]

    assert f"{run_copy.best} (the best checkpoint" in chosen()
    assert run_cli("average", run_copy.path, "--last", "2").code == 0
    assert re.search(rf"{run_copy.averaged} \(.*2 checkpoints.* 30\b", chosen())
    shutil.copy(run_copy.step_file(30), run_copy.step_file(40))
    assert re.search(r"best checkpoint.*averaged\.safetensors.* 30\b.* 40\b", chosen())
    run_copy.averaged.unlink()
    run_copy.best.unlink()
    assert f"{run_copy.last} (the last checkpoint" in chosen()


def test_the_output_formats_agree(tiny_run: RunFolder, run_cli: Callable[..., Done]) -> None:
    words = ("translate", "--model", tiny_run.path, "--beam", "3")
    source = SENTENCE + b"\n" + SENTENCE
    plain = run_cli(*words, stdin=source).out.decode().split("\n")
    best = run_cli(*words, "--nbest", "3", stdin=source).out.decode().split("\n")
    assert len(plain) == 4
    assert len(best) == 10
    assert best[0:9:3] == plain[:3]
    assert best[3:6] == ["", "", ""]
    scored = run_cli(*words, "--nbest", "3", "--scores", stdin=source).out.decode().split("\n")
    assert [line.partition("\t")[2] for line in scored] == best
    numbers = [float(line.partition("\t")[0]) for line in scored[:3]]
    assert numbers == sorted(numbers, reverse=True)
    objects = [json.loads(line) for line in run_cli(*words, "--nbest", "3", "--json", stdin=source).out.splitlines()]
    assert [t["text"] for entry in objects for t in entry["translations"]] == best[:9]
    fields = {"text", "score", "logprob", "finished", "tokens", "subwords", "token_logprobs"}
    assert set(objects[0]["translations"][0]) == fields
    assert [entry["source"] for entry in objects] == source.decode().split("\n")[:3]
    for t in (t for entry in objects for t in entry["translations"] if t["text"]):
        assert len(t["tokens"]) == len(t["subwords"]) == len(t["token_logprobs"])
        assert t["logprob"] == pytest.approx(math.fsum(t["token_logprobs"]))
        assert "".join(t["subwords"]).removesuffix("</s>").replace("\u2581", " ").strip() == t["text"].strip()
    table = run_cli(*words, "--nbest", "3", "--tsv", stdin=source).out.decode().split("\n")
    for line, t in zip(table[:-1], (t for entry in objects for t in entry["translations"]), strict=True):
        logprob, score, text = line.split("\t")
        for shown, number in ((logprob, t["logprob"]), (score, t["score"])):
            assert float(shown) == pytest.approx(-math.inf if number is None else number, abs=1e-6)
        assert text == t["text"]
    short = run_cli(*words, "--nbest", "3", "--max-length", "1", "--json", stdin=SENTENCE)
    assert all(t["score"] is None for t in json.loads(short.out)["translations"][1:])
    assert re.search("2 n-best", short.err)
    drawn = run_cli("translate", "--model", tiny_run.path, "--sample", "--seed", "3", "--nbest", "9", stdin=SENTENCE)
    assert len(set(drawn.out.splitlines())) > 1
    for candidates in (["--beam", "8"], ["--nbest", "9"], ["--sample", "--epsilon", "0.01", "--mbr-samples", "8"]):
        chosen = run_cli(
            *("translate", "--model", tiny_run.path, "--mbr", "chrf", "--scores", "--min-length", "3"),
            *candidates,
            stdin=SENTENCE,
        )
        assert 0 < float(chosen.out.split(b"\t")[0]) <= 100, chosen.err
    both = run_cli(*words, "--model", tiny_run.last, stdin=source)
    assert both.err.count("model: ") == 2
    assert both.out.count(b"\n") == 3


def test_a_bad_override_is_named_by_its_flag(tiny_data: DataFolder, run_cli: Callable[..., Done]) -> None:
    done = run_cli("train", "--data", tiny_data.path, "--set", "d_model=130")
    assert (done.code, done.out) == (2, b"")
    for words in ("--set", "section.key=value", "'d_model=130'"):
        assert words in done.err


def test_given_pairs_are_scored(
    tiny_run: RunFolder, tiny_data: DataFolder, tmp_path: Path, run_cli: Callable[..., Done]
) -> None:
    source, translations = tiny_data.path.parent / "valid.en", tmp_path / "translations.de"
    lines = source.read_bytes()
    # Short translations: encoded again, one at the limit may exceed it.
    translations.write_bytes(run_cli("translate", "--model", tiny_run.path, "--max-length", "12", stdin=lines).out)
    words = ("logprob", source, translations, "--model", tiny_run.path)
    done = run_cli(*words)
    assert done.code == 0, done.err
    assert re.search(r"12 .*perplexity [\d.]+", done.err)
    sources, targets = (text.split("\n")[:-1] for text in (lines.decode(), translations.read_text()))
    expected = vtrans.load(tiny_run.path).logprob(sources, targets)
    for line, t in zip(done.out.decode().split("\n")[:-1], expected, strict=True):
        assert [float(number) for number in line.split("\t")] == pytest.approx([t.logprob, t.score], abs=2e-6)
    objects = [json.loads(line) for line in run_cli(*words, "--json", "--quiet").out.splitlines()]
    assert [entry["source"] for entry in objects] == lines.decode().split("\n")[:-1]
    assert run_cli(*words, "--output", tmp_path / "out").out == b""
    assert (tmp_path / "out").read_bytes() == done.out
    by_length = run_cli(*words, "--alpha", "1", "--length-penalty", "length").out.decode().split("\n")
    for line, entry in zip(by_length[:-1], objects, strict=True):
        (t,) = entry["translations"]
        assert float(line.split("\t")[1]) == pytest.approx(t["logprob"] / len(t["tokens"]), abs=1e-5)
    twice = run_cli(*words, "--model", tiny_run.best, "--weight", "3", "--weight", "1")
    assert (twice.code, twice.out.count(b"\n")) == (0, 12)


def test_a_line_is_searched_again_unless_told_not_to(tiny_run: RunFolder, run_cli: Callable[..., Done]) -> None:
    lines = ["the big dog sees me", "", "the big dog sees me today and a cat sleeps", "a cat"]
    text = "".join(f"{line}\n" for line in lines).encode()
    outputs = []
    for words in ([], ["--no-retry"]):
        made = vtrans.load(tiny_run.path, device="cpu", retry=not words)
        done = run_cli("translate", "--model", tiny_run.path, "--device", "cpu", *words, stdin=text)
        assert done.code == 0, done.err
        assert done.out.decode().split("\n")[:-1] == list(made.translate(lines))
        assert (made.counts.retried > 0) == ("again" in done.err) == (not words)
        outputs.append(done.out)
    assert outputs[0] != outputs[1]
    refused = run_cli("translate", "--model", tiny_run.path, "--sample", "--no-retry", stdin=text)
    assert (refused.code, "--no-retry" in refused.err) == (2, True)


def test_constraints_reach_the_search(tiny_run: RunFolder, tmp_path: Path, run_cli: Callable[..., Done]) -> None:
    prefixes = tmp_path / "prefixes.gz"
    prefixes.write_bytes(gzip.compress(b"Der Esel \n\n"))
    words = ("translate", "--model", tiny_run.path, "--json")
    plain = [json.loads(line) for line in run_cli(*words, stdin=SENTENCE * 2).out.splitlines()]
    options = ("--prefix", prefixes, "--no-repeat-ngram", "1", "--min-length", "15", "--repetition-penalty", "1.5")
    done = run_cli(*words, *options, stdin=SENTENCE * 2)
    assert done.code == 0, done.err
    first, second = (json.loads(line)["translations"][0] for line in done.out.splitlines())
    assert first["text"].startswith("Der Esel ")
    assert first["tokens"] != second["tokens"] != plain[0]["translations"][0]["tokens"]
    for t in (first, second):
        tokens = [token for token, piece in zip(t["tokens"], t["subwords"], strict=True) if piece != "</s>"]
        assert len(tokens) >= 15
        assert t is first or len(set(tokens)) == len(tokens)


def test_pipes_of_unequal_length_are_an_error_at_their_end(
    tiny_run: RunFolder, tmp_path: Path, run_cli: Callable[..., Done]
) -> None:
    pipe, target = tmp_path / "pipe", tmp_path / "two.de"
    os.mkfifo(pipe)
    target.write_bytes(b"Hund\nKater\n")
    writer = threading.Thread(target=pipe.write_bytes, args=(SENTENCE,))
    writer.start()
    done = run_cli("logprob", pipe, target, "--model", tiny_run.path, "--output", tmp_path / "out")
    writer.join()
    assert done.code == 2
    assert re.search(r"\b1\b.*\b2\b", done.err)
    assert not (tmp_path / "out").exists()


def test_input_and_output_may_be_files(tiny_run: RunFolder, tmp_path: Path, run_cli: Callable[..., Done]) -> None:
    source, target = tmp_path / "in.txt.gz", tmp_path / "out.txt"
    source.write_bytes(gzip.compress(SENTENCE * 3 + b"no line end"))
    expected = run_cli("translate", "--model", tiny_run.path, stdin=SENTENCE * 3 + b"no line end")
    target.write_bytes(b"old")
    done = run_cli("translate", "--model", tiny_run.path, "--input", source, "--output", target)
    assert (done.code, done.out) == (0, b"")
    assert target.read_bytes() == expected.out
    assert expected.out.count(b"\n") == 4


def test_an_error_leaves_the_old_output_unchanged(
    tiny_run: RunFolder, tmp_path: Path, run_cli: Callable[..., Done]
) -> None:
    target = tmp_path / "out.txt"
    target.write_bytes(b"old")
    done = run_cli(
        "translate", "--model", tiny_run.path, "--output", target, "--line-buffered", stdin=SENTENCE + b"bad \xff\n"
    )
    assert done.code == 2
    assert re.search(rf"error: stdin: line 2 .*0xff .*offset {len(SENTENCE) + 4}\b", done.err)
    assert target.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["out.txt"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=60), n=st.integers(1, 2))
def test_any_bytes_in_lines_in_equal_lines_out(
    raw: bytes, n: int, tiny_run: RunFolder, run_cli: Callable[..., Done]
) -> None:
    lines = raw.count(b"\n") + (not raw.endswith(b"\n") and raw.removeprefix(b"\xef\xbb\xbf") != b"")
    words = ("--model", tiny_run.path, "--max-length", "4", "--on-bad-utf8", "replace", "--nbest", str(n))
    done = run_cli("translate", *words, stdin=raw)
    assert done.code == 0
    assert done.out.count(b"\n") == lines * n
    assert all(one_line(line) == line for line in done.out.decode().split("\n"))


# Faults: one sentence, exit code 2, and no file is changed.


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_data: DataFolder,
    tiny_data_separate: DataFolder,
    tiny_run: RunFolder,
) -> Path:
    """A folder with valid files, and invalid ones of every kind."""
    place = tmp_path_factory.mktemp("place")
    for name in ("train.en", "train.de", "valid.en", "valid.de"):
        shutil.copy(tiny_data.path.parent / name, place / name)
    shutil.copytree(tiny_data.path, place / "data")
    shutil.copytree(tiny_data_separate.path, place / "separate")
    shutil.copytree(tiny_run.path, place / "run")
    good = tiny_run.last.read_bytes()
    (place / "model.safetensors").write_bytes(good)
    (place / "truncated.safetensors").write_bytes(good[: len(good) // 2])
    (place / "stub.safetensors").write_bytes(good[:5])
    (place / "empty.safetensors").write_bytes(b"")
    save_file({"weight": torch.zeros(3)}, place / "foreign.safetensors")
    shutil.copy(next((tiny_run.path / "state").glob("*.safetensors")), place / "state.safetensors")
    (place / "empty").write_bytes(b"")
    (place / "binary").write_bytes(b"\x00\x01\x02\n" * 180)
    (place / "latin1").write_bytes("ein schöner Hund\n".encode("latin-1"))
    (place / "cut.gz").write_bytes(gzip.compress((place / "train.en").read_bytes())[:-20])
    (place / "short.de").write_bytes(b"Der Hund.\nDer Kater.\n")
    (place / "marks.de").write_bytes(b"Der gro@@ \xc3\x9fe Hund\n" * 12)
    (place / "pieces.de").write_bytes("▁Der ▁Hund\n".encode() * 12)
    (place / "bad.toml").write_bytes(b"[model]\nd_modell = 3\n")
    (place / "not.toml").write_bytes(b"[model\n")
    (place / "folder").mkdir()
    (place / "folder" / "note").write_bytes(b"mine")
    (place / "folder" / "linked").symlink_to(place / "run" / "best.safetensors")
    return place


def tree(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file in a folder."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "folder"
        for file in folder.rglob("*")
    }


PREPARE = "prepare-bpe --src train.en --tgt train.de --out new"
TRANSLATE = "translate --model run"
# Each faulty command with a pattern for what its error must name: the option, file or key, and the value.
FAULTS = [
    ("prepare-bpe", "--src"),
    ("prepare-bpe --src nowhere.en --tgt train.de --out new", r"nowhere\.en"),
    ("prepare-bpe --src folder --tgt train.de --out new", "folder"),
    ("prepare-bpe --src empty --tgt train.de --out new", "empty"),
    ("prepare-bpe --src empty --tgt empty --out new", "empty"),
    ("prepare-bpe --src binary --tgt train.de --out new", "binary: line 1"),
    ("prepare-bpe --src train.en --tgt short.de --out new", r"168 .*\b2\b"),
    ("prepare-bpe --src latin1 --tgt latin1 --out new", "latin1: line 1 .*0xf6 .*offset 7"),
    ("prepare-bpe --src cut.gz --tgt train.de --out new", r"cut\.gz"),
    (f"{PREPARE} --src valid.en", "--src and --tgt .*2 .*1"),
    (f"{PREPARE} --valid-src valid.en", "--valid-src and --valid-tgt .*1 .*0"),
    (f"{PREPARE} --valid-src valid.en --valid-tgt nowhere.de", r"nowhere\.de"),
    (f"{PREPARE} --vocab-size 50000", r"--vocab-size .*\d"),
    (f"{PREPARE} --vocab-size 20", r"--vocab-size .*\d"),
    (f"{PREPARE} --vocab-size 0", "--vocab-size .*from 5 .*0"),
    (f"{PREPARE} --vocab-size many", "--vocab-size"),
    (f"{PREPARE} --subword wpe", "--subword .*bpe, unigram.*wpe"),
    (f"{PREPARE} --normalization nfc", "--normalization .*nmt_nfkc.*'nfc'"),
    (f"{PREPARE} --character-coverage 2", r"--character-coverage .*from 0\.98 to 1"),
    (f"{PREPARE} --max-ratio 0.5", r"--max-ratio .*from 1 .*0\.5"),
    (f"{PREPARE} --max-tokens 1", "--max-tokens|no training pair|tokens"),
    (f"{PREPARE} --dry-run --quiet", "--dry-run .*--quiet"),
    (f"{PREPARE} --sample 0", "--sample .*from 1 .*0"),
    (f"{PREPARE} --seed -1", "--seed .*from 0 .*-1"),
    (f"{PREPARE} --on-bad-utf8 ignore", "--on-bad-utf8 .*ignore"),
    ("prepare-bpe --src train.en --tgt train.de", "data .*--force"),
    ("prepare-bpe --src train.en --tgt train.de --out folder", "folder"),
    ("prepare-bpe --src train.en --tgt train.de --out empty", "empty"),
    ("train --data nowhere --out new", "nowhere"),
    ("train --data folder --out new", "folder"),
    ("train --out new --recipe smal", r"smal\b.*small\?"),
    ("train --out new --recipe nowhere.toml", r"nowhere\.toml"),
    ("train --out new --recipe bad.toml", r"bad\.toml.*model\.d_modell.*d_model\?"),
    ("train --out new --recipe not.toml", r"not\.toml.*TOML"),
    ("train --out new --set model.heads=5", r"model\.heads .*model\.d_model"),
    ("train --out new --set train.max_stpes=5", r"train\.max_stpes.*max_steps\?"),
    ("train --out new --set trian.max_steps=5", r"trian.*train\?"),
    ("train --out new --set train.max_steps=0", r"train\.max_steps .*from 1 to"),
    ("train --out new --set max_steps=5", r"section\.key=value.*max_steps=5"),
    ("train --out new --device nonsense", "--device .*cpu, cuda, .*nonsense"),
    ("train --out new --data separate --set model.tie=src-tgt", r"model\.tie .*src-tgt"),
    ("train --data separate", r"\brun\b.*separate"),
    ("train --set model.d_model=64", r"model\.d_model 32 -> 64"),
    ("train --out empty", "empty"),
    ("train --out new more", "more"),
    ("average run/step-00000020.safetensors model.safetensors", "--out"),
    ("average model.safetensors --last 2 --out new", "--last"),
    ("average --last 2 --best 2", "--last .*--best"),
    ("train --dry-run --quiet", "--dry-run .*--quiet"),
    ("average --last 0", "--last"),
    ("average nowhere", "nowhere"),
    ("average folder", "folder"),
    ("average nowhere.safetensors model.safetensors --out new", r"nowhere\.safetensors"),
    ("average truncated.safetensors model.safetensors --out new", r"truncated\.safetensors"),
    ("average model.safetensors state.safetensors --out new", r"state\.safetensors"),
    ("average model.safetensors model.safetensors --out nowhere/new", "nowhere/new"),
    ("translate --model nowhere", "nowhere"),
    ("translate --model folder", "folder"),
    ("translate --model truncated.safetensors", r"truncated\.safetensors"),
    ("translate --model stub.safetensors", r"stub\.safetensors"),
    ("translate --model empty.safetensors", r"empty\.safetensors"),
    ("translate --model train.en", r"train\.en"),
    ("translate --model foreign.safetensors", r"foreign\.safetensors"),
    ("translate --model state.safetensors", r"state\.safetensors"),
    (f"{TRANSLATE} --model separate/train.safetensors", r"train\.safetensors"),
    (f"{TRANSLATE} --beam 0", r"--beam .*from 1 to 1000.* 0\b"),
    (f"{TRANSLATE} --beam wide", "--beam"),
    (f"{TRANSLATE} --alpha 11", r"--alpha .*to 10\b.* 11"),
    (f"{TRANSLATE} --alpha nan", "--alpha .*nan"),
    (f"{TRANSLATE} --length-penalty fairseq", "--length-penalty .*gnmt, length.*fairseq"),
    (f"{TRANSLATE} --stop never", "--stop .*count, current, exhaustive.*never"),
    (f"{TRANSLATE} --batch-tokens 0", "--batch-tokens .*from 1 to"),
    (f"{TRANSLATE} --max-length -1", "--max-length .*from 0 to"),
    (f"{TRANSLATE} --nbest 3", "--nbest .*--beam"),
    (f"{TRANSLATE} --nbest 0", "--nbest .*0"),
    (f"{TRANSLATE} --top-k 5", "--top-k .*--sample"),
    (f"{TRANSLATE} --temperature 2 --output new", "--temperature .*--sample"),
    (f"{TRANSLATE} --sample --beam 5", "--beam .*--sample"),
    (f"{TRANSLATE} --sample --temperature 0", "--temperature .*0"),
    (f"{TRANSLATE} --sample --top-p 2", "--top-p .*2"),
    (f"{TRANSLATE} --sample --epsilon 1", "--epsilon .*below 1, got 1"),
    (f"{TRANSLATE} --mbr comet", "--mbr .*chrf, bleu, .*comet"),
    (f"{TRANSLATE} --mbr chrf --mbr-samples 8", "--mbr-samples .*--sample"),
    (f"{TRANSLATE} --sample --mbr-samples 8", "--mbr-samples .*--mbr"),
    (f"{TRANSLATE} --mbr bleu --sample --mbr-samples 1", "--mbr-samples .*from 2 .* 1"),
    (f"{TRANSLATE} --mbr bleu --sample --mbr-samples 2 --nbest 3", "--nbest .*--mbr-samples .* 3"),
    (f"{TRANSLATE} --mbr chrf --beam 1", "--beam .*--mbr.* 1"),
    (f"{TRANSLATE} --scores --json", "--scores"),
    (f"{TRANSLATE} --tsv --json", "--tsv"),
    (f"{TRANSLATE} --scores --tsv", "--scores"),
    (f"{TRANSLATE} --device nonsense", "--device .*cpu, cuda, .*nonsense"),
    (f"{TRANSLATE} --device cuda:77", "--device .*cuda:77"),
    (f"{TRANSLATE} --on-bad-utf8 skip", "--on-bad-utf8 .*skip"),
    (f"{TRANSLATE} --input nowhere", "nowhere"),
    (f"{TRANSLATE} --input folder", "folder"),
    (f"{TRANSLATE} --input latin1 --output new", "latin1: line 1"),
    (f"{TRANSLATE} --input cut.gz --output train.de", r"cut\.gz"),
    (f"{TRANSLATE} --input train.en --output nowhere/new", "nowhere/new"),
    (f"{TRANSLATE} --input train.en --output folder", "folder"),
    (f"{TRANSLATE} --input train.en --output ./train.en", r"--output .*--input.*train\.en"),
    (f"{TRANSLATE} --processes 0", "--processes .*from 1 .*0"),
    (f"{TRANSLATE} --processes 2 --line-buffered", "--processes .*--line-buffered"),
    ("translate --model model.safetensors --output model.safetensors", "--output .*--model"),
    ("translate --output run/averaged.safetensors", r"--output .*run/averaged\.safetensors"),
    (f"{TRANSLATE} --output run/last.safetensors", r"--output .*run/last\.safetensors"),
    ("translate --model model.safetensors --output run/recipe.toml", r"--output .*run/recipe\.toml"),
    (f"{TRANSLATE} --output {'x' * 300}", "x+"),
    (f"{TRANSLATE} --output folder/linked", "--output .*folder/linked"),
    (f"{TRANSLATE} --output run/state/step-00000030.safetensors", r"--output .*state/step-00000030\.safetensors"),
    ("logprob train.en train.de --output run/step-00000020.safetensors", r"--output .*step-00000020\.safetensors"),
    (f"{TRANSLATE} train.en", r"train\.en.*--input"),
    ("train --resume", "--resume; .*`vtrans train --help`"),
    (f"{TRANSLATE} --bem 4", r"--bem; .*--beam\?"),
    (f"{TRANSLATE} --beam x", "--beam must be a whole number, got x; "),
    (f"{TRANSLATE} --alpha=x", "--alpha must be a number, got x; "),
    ("average RUN --last -3", r"--last must be .*1, got -3; "),
    (f"{TRANSLATE} --min-length -1", "--min-length .*from 0 to"),
    (f"{TRANSLATE} --min-length 9 --max-length 9", r"--min-length .*\b9\b"),
    (f"{TRANSLATE} --no-repeat-ngram -1", "--no-repeat-ngram .*from 0 to"),
    (f"{TRANSLATE} --repetition-penalty 0.5", r"--repetition-penalty .*from 1 to .*0\.5"),
    (f"{TRANSLATE} --prefix nowhere", "nowhere"),
    (f"{TRANSLATE} --prefix train.de --output train.de", "--prefix"),
    (f"{TRANSLATE} --input train.en --prefix short.de", r"168 .*short\.de .*\b2\b"),
    (f"{TRANSLATE} --prefix empty", "prefix"),
    (f"{TRANSLATE} --input train.en --prefix train.de --max-length 3", r"prefix .*line \d+"),
    (f"{TRANSLATE} --weight 1", "--weight"),
    (f"{TRANSLATE} --model run --weight 1", "--weight .* 2, got 1"),
    (f"{TRANSLATE} --model run --weight 1 --weight -1", "--weight .*-1"),
    ("logprob train.en", "TGT"),
    ("logprob train.en short.de", r"168 .*short\.de .*\b2\b"),
    ("logprob train.en nowhere", "nowhere"),
    ("logprob train.en folder", "folder"),
    ("logprob latin1 latin1 --output new", "latin1: line 1"),
    ("logprob train.en train.de --alpha 11", "--alpha .*11"),
    ("logprob train.en train.de --output train.de", r"--output .*TGT.*train\.de"),
    ("logprob train.en train.de --model nowhere", "nowhere"),
    ("score", "REF"),
    ("score nowhere", "nowhere"),
    ("score valid.de --hyp short.de", r"\b12\b.*\b2\b|\b2\b.*\b12\b"),
    ("score valid.de --hyp valid.de --baseline short.de", r"\b12\b.*\b2\b|\b2\b.*\b12\b"),
    ("score valid.de short.de --hyp valid.de", r"\b12\b.*\b2\b|\b2\b.*\b12\b"),
    ("score valid.de --hyp marks.de", "@@"),
    ("score valid.de --hyp pieces.de", r"U\+2581|▁"),
    ("score valid.de --hyp valid.de --metric blue", "--metric .*bleu.*blue"),
    ("score valid.de --hyp valid.de --tokenize 31a", "--tokenize .*13a.*31a"),
    ("score empty --hyp empty", "no lines|empty"),
    ("score valid.de --hyp latin1", "latin1: line 1"),
    ("trian", r"trian; .*train\?"),
    ("xyzzy", "xyzzy; .*`vtrans --help`"),
    ("--verbose", "--verbose"),
]


@pytest.mark.parametrize(("words", "message"), FAULTS, ids=[words for words, _ in FAULTS])
def test_a_fault_gets_one_sentence(
    words: str, message: str, place: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Callable[..., Done]
) -> None:
    monkeypatch.chdir(place)
    before = tree(place)
    done = run_cli(*words.split(), stdin=SENTENCE)
    assert (done.code, done.out) == (2, b""), done.err
    *others, last, end = done.err.split("\n")
    assert end == ""
    assert re.fullmatch(rf"error: .*(?:{message}).*", last), last
    assert re.search(r"[.?]$", last), last
    assert not re.search(r"[.?:]{2}$|\.;|Traceback|[╭│╰]", done.err), done.err
    assert not any(line.startswith("error") for line in others)
    assert tree(place) == before


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_vocabulary_size_that_an_error_names_is_possible(
    separate: bool, kind: str, place: Path, tmp_path: Path, run_cli: Callable[..., Done]
) -> None:
    words = ["prepare-bpe", "--src", place / "train.en", "--tgt", place / "train.de", "--out", tmp_path / "data"]
    words += ["--subword", kind, *(["--separate"] if separate else [])]
    for wrong in ("9000", "30"):
        refused = run_cli(*words, "--vocab-size", wrong, "--force")
        named = re.search(r"--vocab-size .*at (?:most|least) (\d+)", refused.err)
        assert refused.code == 2
        assert named, refused.err
        taken = run_cli(*words, "--vocab-size", named[1], "--force")
        assert taken.code == 0, taken.err


def test_debug_shows_the_traceback(run_cli: Callable[..., Done]) -> None:
    for words in (("--debug", "translate", "--model", "nowhere"), ("translate", "--debug", "--model", "nowhere")):
        done = run_cli(*words)
        assert done.code == 2
        assert "Traceback (most recent call last)" in done.err
        assert re.search(r"\nerror: .*nowhere.*\n$", done.err)


def test_what_fails_while_running_has_exit_code_1(
    tiny_run: RunFolder, monkeypatch: pytest.MonkeyPatch, run_cli: Callable[..., Done]
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("out of memory:\n  tried to allocate")

    monkeypatch.setattr("vtrans.translate.stream.translate_stream", lambda *args, **options: broken())
    done = run_cli("translate", "--model", tiny_run.path, "--quiet", stdin=SENTENCE)
    assert (done.code, done.out) == (1, b"")
    assert re.fullmatch("error: RuntimeError: out of memory: tried to allocate .*--debug.*\n", done.err)


# Streams, in processes of their own.


def test_an_open_pipe_gets_its_answers(tiny_run: RunFolder) -> None:
    for extra in ((), ("--line-buffered",)):
        process = start("translate", "--model", tiny_run.path, "--quiet", *extra)
        assert process.stdin is not None
        for _ in range(2):
            process.stdin.write(SENTENCE)
            process.stdin.flush()
            assert read_line(process)
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert read_line(process) == b"\n"
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, b"")
        assert all(line.startswith("warning: ") for line in err.decode().split("\n")[:-1])


def test_an_empty_nonblocking_pipe_has_not_ended(tiny_run: RunFolder) -> None:
    theirs, ours = os.pipe()
    os.set_blocking(theirs, False)
    process = start("translate", "--model", tiny_run.path, stdin=theirs)
    assert process.stderr is not None
    os.read(process.stderr.fileno(), 1)  # it has started and found nothing to read
    for _ in range(2):
        os.write(ours, SENTENCE)
        assert read_line(process)
    os.close(ours)
    os.close(theirs)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"")


def test_a_closed_output_pipe_ends_the_command_quietly(tiny_run: RunFolder, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.write_bytes(SENTENCE * 5000)
    with start("translate", "--model", tiny_run.path, "--input", source, "--quiet", "--line-buffered") as process:
        assert read_line(process)
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_interrupting_leaves_whole_lines(tiny_run: RunFolder, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"old")
    ends = {signal.SIGINT: "interrupted", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
    for words, number in itertools.product([(), ("--output", target)], ends):
        process = start("translate", "--model", tiny_run.path, "--line-buffered", *words)
        assert process.stdin is not None
        assert process.stderr is not None
        process.stderr.readline()  # it has started: the model is named
        process.stdin.write(SENTENCE * 20)
        process.stdin.flush()
        first = b"" if words else read_line(process)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 1, err
        assert re.search(rf"(^|\n)error: .*{ends[number]}.*\n$", err.decode()), err
        assert b"Traceback" not in err
        assert (first + out).endswith(b"\n") or words
    assert target.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_an_interrupt_while_python_exits_prints_no_traceback() -> None:
    program = (
        "import atexit, signal\natexit.register(signal.raise_signal, signal.SIGINT)\n"
        "from vtrans.cli import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.startswith("vtrans ")


def test_score_with_a_terminal_on_stdin_says_how_to_give_a_hypothesis(place: Path) -> None:
    with terminal() as (_, theirs):
        for files in (("valid.de",), ("valid.de", "valid.en")):
            process = start("score", *files, cwd=place, stdin=theirs)
            out, err = process.communicate(timeout=60)
            assert (process.returncode, out) == (2, b"")
            assert "--hyp" in err.decode()


def test_translating_from_a_terminal(tiny_run: RunFolder) -> None:
    with terminal() as (ours, theirs):
        process = start("translate", "--model", tiny_run.path, stdin=theirs)
        os.write(ours, SENTENCE)
        assert read_line(process)
        os.write(ours, b"\x04")
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, b"")
        assert "Ctrl-D" in err.decode()


def test_progress_is_not_drawn_over_the_translations(tiny_run: RunFolder, tmp_path: Path) -> None:
    # The reader of a pipe often writes to the same terminal.
    for out, drawn in (("terminal", False), ("pipe", False), ("file", True)):
        with terminal() as (ours, theirs), (tmp_path / "out").open("wb") as file:
            stdout = {"terminal": theirs, "pipe": subprocess.PIPE, "file": file}[out]
            process = start("translate", "--model", tiny_run.path, stdout=stdout, stderr=theirs)
            process.communicate(SENTENCE, timeout=60)
            assert process.returncode == 0
            seen = os.read(ours, 1 << 16).decode()
            assert ("translated" in seen) == drawn
            assert "1 line in " in seen


def test_progress_knows_how_long_a_file_is(tiny_run: RunFolder, tmp_path: Path) -> None:
    for name, pack in (("in", bytes), ("in.gz", gzip.compress), ("in.xz", lzma.compress), ("in.bz2", bz2.compress)):
        source = tmp_path / name
        source.write_bytes(pack(SENTENCE * 60))
        with terminal() as (ours, theirs):
            words = ("--input", source, "--output", tmp_path / "out")
            process = start("translate", "--model", tiny_run.path, *words, stderr=theirs)
            seen = ""
            while (
                process.poll() is None or select.select([ours], [], [], 0)[0]
            ):  # a full terminal would block the command
                if select.select([ours], [], [], 0.1)[0]:
                    seen += os.read(ours, 1 << 16).decode()
            process.communicate(timeout=60)
            assert process.returncode == 0
        assert re.search(r"100%.*60 sentences, [0-9,.]+/s", seen), seen


@pytest.mark.parametrize(("name", "opened"), [("o.gz", gzip.open), ("o.xz", lzma.open), ("o.bz2", bz2.open)])
def test_output_is_compressed_according_to_its_name(
    name: str, opened: Callable[..., Any], tiny_run: RunFolder, tmp_path: Path, run_cli: Callable[..., Done]
) -> None:
    target = tmp_path / name
    expected = run_cli("translate", "--model", tiny_run.path, stdin=SENTENCE * 3)
    for _ in range(2):
        done = run_cli("translate", "--model", tiny_run.path, "--output", target, stdin=SENTENCE * 3)
        assert done.code == 0
        with opened(target) as file:
            assert file.read() == expected.out
    before = target.read_bytes()
    assert run_cli("translate", "--model", tiny_run.path, "--output", target, stdin=b"bad \xff\n").code == 2
    assert target.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_closed_streams_are_named(tiny_run: RunFolder) -> None:
    words = ["vtrans", "translate", "--quiet", "--model", str(tiny_run.path)]
    for number, name in enumerate(("stdin", "stdout")):
        # What Python does if the stream is closed when it starts.
        program = f"import os, sys; os.close({number}); sys.{name} = sys.__{name}__ = None; sys.argv = {words!r}\n"
        program += "from vtrans.cli import main\nmain()"
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with start_python(["-c", program], {**os.environ, "OMP_NUM_THREADS": "1"}, **pipes) as process:
            out, err = process.communicate(SENTENCE, timeout=120)
        assert (process.returncode, out) == (2, b"")
        assert err.decode().startswith(f"error: {name} ")
        assert err.count(b"\n") == 1


# Names that are not UTF-8.


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, which holds an empty folder `b\\xff` and text files `a\\xff.en` and `a\\xff.de`."""
    monkeypatch.chdir(tmp_path)
    try:
        (tmp_path / os.fsdecode(b"b\xff")).mkdir()
    except OSError:
        pytest.skip("this disk has no such names")
    write_pairs(tmp_path, os.fsdecode(b"a\xff"), TRAIN_PAIRS)
    return tmp_path


def test_a_text_file_may_have_any_name(odd: Path, tiny_run: RunFolder, run_cli: Callable[..., Done]) -> None:
    run, src, tgt = tiny_run.path, os.fsdecode(b"a\xff.en"), os.fsdecode(b"a\xff.de")
    for words in (
        ("prepare-bpe", "--src", src, "--tgt", tgt, "--vocab-size", "320", "--json"),
        ("overlap", src, tgt, "--vocab-size", "320", "--json"),
        ("translate", "--model", run, "--input", src, "--output", os.fsdecode(b"hyp\xff"), "--beam", "1"),
        ("logprob", src, tgt, "--model", run),
        ("score", tgt, "--hyp", os.fsdecode(b"hyp\xff"), "--json"),
        ("attend", run, "The big dog sees me today.", "--out", os.fsdecode(b"\xff.svg")),
    ):
        done = run_cli(*words)
        assert done.code == 0, done.err
        if "--json" in words:
            json.loads(done.out)
    assert (odd / os.fsdecode(b"\xff.svg")).exists()
    assert [pair["src"]["name"] for pair in DataFolder.open("data").report["inputs"]["train"]] == ["a\\xff.en"]


def test_a_folder_or_model_whose_name_is_not_utf8_is_refused_first(
    odd: Path, tiny_data: DataFolder, tiny_run: RunFolder, run_cli: Callable[..., Done]
) -> None:
    run, data, name, model = tiny_run.path, tiny_data.path, os.fsdecode(b"b\xff"), os.fsdecode(b"m\xff.safetensors")
    shutil.copy(tiny_run.last, model)
    before = sorted(odd.rglob("*"))
    text = ("--src", os.fsdecode(b"a\xff.en"), "--tgt", os.fsdecode(b"a\xff.de"))
    for words in (
        ("prepare-bpe", *text, "--out", name),
        ("train", "--data", data, "--out", name),
        ("train", "--data", name),
        ("train", "--data", data, "--init-from", model),
        ("average", name),
        ("average", run, "--out", model),
        ("average", model, "--out", "new"),
        ("shortlist", run, "--data", data, "--out", model),
        ("shortlist", run, "--data", name, "--out", "new"),
        ("overlap", "--data", name),
        ("inspect", model),
        ("inspect", run, "--data", name),
        ("attend", name, "A dog."),
        ("export", name),
        ("export", run, "--out", name),
        ("translate", "--model", model),
        ("translate", "--model", name),
        ("logprob", *text[1::2], "--model", model),
    ):
        done = run_cli(*words)
        assert (done.code, done.out) == (2, b""), words
        assert "\\xff" in done.err.splitlines()[-1], words
        assert sorted(odd.rglob("*")) == before, words


@pytest.mark.parametrize(
    "words", [("inspect", "--word", "\udcff"), ("attend", "A dog.", "--target", "\udcff"), ("attend", "\udcff")]
)
def test_an_argument_that_is_not_utf8_is_refused(
    words: tuple[str, ...], tiny_run: RunFolder, run_cli: Callable[..., Done]
) -> None:
    done = run_cli(words[0], tiny_run.path, *words[1:])
    assert (done.code, done.out) == (2, b"")
    assert "error: " in done.err.splitlines()[-1]


def test_a_parameter_named_by_a_library_error_is_printed_as_its_flag(
    monkeypatch: pytest.MonkeyPatch, run_cli: Callable[..., Done], tmp_path: Path
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise InputError("`tgt` and `out` and `max_length` must agree.")

    monkeypatch.setattr(vtrans.data.preparation.prepare, "prepare", refuse)
    done = run_cli("prepare-bpe", "--src", tmp_path / "a", "--tgt", tmp_path / "b")
    assert done.code == 2
    assert done.err == "error: --tgt and --out and `max_length` must agree.\n"


def test_a_wrong_override_of_a_new_run_is_blamed_on_its_recipe(
    tmp_path: Path, tiny_data: DataFolder, run_cli: Callable[..., Done]
) -> None:
    words = ("train", "--data", tiny_data.path, "--out", tmp_path / "new")
    done = run_cli(*words, "--set", "model.heads=3")
    assert done.code == 2
    assert done.err.startswith("error: recipe small: model.heads ")
    done = run_cli(*words, "--set", "train.max_steps=1\nmodel.heads=1")
    assert done.code == 2
    assert done.err.count("\n") == 1
