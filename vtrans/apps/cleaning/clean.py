"""Cleans parallel text for `vtrans clean`: drops pairs by rules and by models learned from the text itself.

The text is streamed from its files in several passes, and its words are kept on disk as ids. Memory holds about 60
bytes per pair, and half a gigabyte for the models and their training pairs.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vtrans.apps.cleaning.alignment import FEWEST_PAIRS, id_of, unsound
from vtrans.apps.cleaning.clean_options import RULES, CleanOptions
from vtrans.apps.cleaning.detection import is_known
from vtrans.apps.cleaning.rules import PACKAGES, Rules, key_of, words_of
from vtrans.config.keys import LONGEST_SHOWN
from vtrans.data.aligner import Ints
from vtrans.data.preparation.encode import TextPair
from vtrans.data.preparation.output_folder import STAGING, publish, staging_folder
from vtrans.data.preparation.parallel_text import Corpus, batches_of, sampled
from vtrans.data.preparation.store_writer import Ragged, unfinished
from vtrans.system.console import Console
from vtrans.system.errors import FileError, InputError, install_command
from vtrans.system.files import named_os_errors, overwritten, printable
from vtrans.text.lines import write_line, writing

FORMAT, REVISION = "vtrans clean", 1
REPORT_FILE, DROPPED_FILE = "clean.json", "dropped.tsv"
SAMPLE = 10_000  # random pairs that the rules learn from
SAMPLED = 1000  # characters read of each side
EXAMPLES = 3  # per reason, in the report
LEARNED = ("misaligned", "incomplete")  # rules that compare pairs with damaged ones
_NAMES = tuple(RULES)


def clean(options: CleanOptions, console: Console) -> dict[str, Any]:
    """Writes the kept pairs, the dropped pairs and the report to the folder `options.out`, and returns the report.

    Raises InputError or FileError if inputs, options or folder are at fault; the folder is then unchanged.
    """
    options = options.checked()
    corpus, out = Corpus((options.src,), (options.tgt,), options.on_bad_utf8), Path(options.out)
    names = (Path(options.src).name, Path(options.tgt).name)
    _check_folder(out, corpus.files[0], names, options.force)
    unapplied = _inapplicable(options)
    ours = (REPORT_FILE, DROPPED_FILE, *names)
    with named_os_errors(out), staging_folder(out, ours) as staging:
        inputs = corpus.hashed(console)[0]
        survey = corpus.survey(console, "text", None)
        usable = (pair for pairs in corpus.by_corpus() for pair in pairs if all(map(str.strip, pair)))
        sample = sampled(usable, survey.usable, SAMPLE, options.seed)
        rules = Rules(options, unapplied, [(src[:SAMPLED], tgt[:SAMPLED]) for src, tgt in sample])
        work = _Work(corpus, rules, staging, survey.pairs, options.seed, console)
        unapplied |= work.drop([rule for rule in RULES if rule not in (*options.without, *unapplied)])
        report = {
            "format": FORMAT,
            "revision": REVISION,
            "options": asdict(options) | {"src": printable(names[0]), "tgt": printable(names[1])},
            "inputs": inputs,
            "characters": {"odd_line_ends": survey.odd_line_ends, "replacements": survey.replacements},
            "languages": options.languages(),
            "scripts": rules.scripts,
            "ratio": rules.ratio,
            "unapplied": unapplied,
            **work.write(names),
        }
        del report["options"]["out"], report["options"]["force"]  # they do not change the result
        corpus.check_unchanged()
        if not report["kept"]:
            counts = ", ".join(f"{rule} {n:,}" for rule, n in report["dropped"].items())
            raise InputError(
                f"every pair of {options.src} and {options.tgt} is dropped ({counts}); leave out rules with `without`, "
                "or give other text."
            )
        publish(staging, out, report, ours)
    for rule, why in unapplied.items():
        (console.warn if rule in PACKAGES else console.info)(f"the rule {rule} was not applied: {why}.")
    if report["dropped"]:
        console.table("dropped pairs", [(f"{n:,}", rule, RULES[rule]) for rule, n in report["dropped"].items()])
    console.info(f"{report['kept']:,} of {report['read']:,} pairs kept, {report['repaired']:,} of them repaired: {out}")
    return report


def _check_folder(out: Path, inputs: Sequence[Path], names: tuple[str, str], force: bool) -> None:
    ours = {*names, DROPPED_FILE, REPORT_FILE, STAGING}
    if len(ours) < 5:
        raise InputError(
            f"the names of `src` and `tgt` must differ from each other, {DROPPED_FILE}, {REPORT_FILE} and {STAGING}, "
            f"because the results in `out` have the same names; got {names[0]} and {names[1]}."
        )
    if not out.exists():
        return
    if not out.is_dir():
        raise FileError(f"{out} is a file, but `out` must be a folder; give another.")
    if any(file.parent.samefile(out) or overwritten(file, (out / name for name in ours)) for file in inputs):
        raise InputError(f"`out` must be another folder than that of `src` and `tgt`, got {out}.")
    present = {file.name for file in out.iterdir()}
    has_report = (out / REPORT_FILE).is_file() and f'"format": "{FORMAT}"'.encode() in (out / REPORT_FILE).read_bytes()
    if others := present if not has_report and STAGING not in present else present - ours:
        raise FileError(f"{out} has other files ({min(others)}); give a new folder with `out`.")
    if has_report and not force:
        raise InputError(
            f"{out} has the result of an earlier run; give another folder with `out`, or replace it with `force`."
        )


def _inapplicable(options: CleanOptions) -> dict[str, str]:
    """Returns the reason for each wanted rule that cannot be applied."""
    reasons = {
        rule: f"{package} is not installed; install it with {install_command('clean')}"
        for rule, package in PACKAGES.items()
        if find_spec(package) is None
    }
    languages = options.languages()
    if languages is None:
        reasons["language"] = "the languages are unknown; `src_lang` and `tgt_lang` say them"
    elif "language" not in reasons and (unknown := [code for code in languages if not is_known(code)]):
        reasons["language"] = f"py3langid does not know {' and '.join(unknown)}"
    return {rule: why for rule, why in reasons.items() if rule not in options.without}


class _Work:
    """The pairs of a text, and why each is dropped. Row i of the words belongs to pair i, and is empty if one of the
    single-pair rules drops it."""

    def __init__(self, corpus: Corpus, rules: Rules, folder: Path, pairs: int, seed: int, console: Console) -> None:
        self.corpus, self.rules, self.folder, self.seed, self.console = corpus, rules, folder, seed, console
        self.reasons: NDArray[np.uint8] = np.zeros(pairs, np.uint8)  # 1 + the index in RULES
        self.repaired: NDArray[np.bool_] = np.zeros(pairs, bool)
        self.keys: NDArray[np.uint64] = np.zeros(pairs, np.uint64)
        self.words = [Ragged(folder / "words", f"{side}_ids", f"{side}_offsets", "I32") for side in ("src", "tgt")]

    @property
    def left(self) -> Ints:
        return np.flatnonzero(self.reasons == 0)

    def drop(self, applied: Sequence[str]) -> dict[str, str]:
        """Applies rules. Returns why some cannot be applied to this text."""
        self._apply_rules()
        if "duplicate" in applied:
            left = self.left
            repeated = np.ones(len(left), bool)
            repeated[np.unique(self.keys[left], return_index=True)[1]] = False
            self._drop("duplicate", left[repeated])
        learned = [rule for rule in LEARNED if rule in applied]
        if len(left := self.left) < FEWEST_PAIRS:
            return dict.fromkeys(learned, f"it needs {FEWEST_PAIRS:,} pairs, and {len(left):,} are left")
        if learned:
            store = unfinished(self.folder / "words", self.words)
            for rule, numbers in unsound(store, left, self.seed, self.folder, self.console):
                if rule in learned:
                    self._drop(rule, numbers)
        return {}

    def _drop(self, rule: str, numbers: Ints) -> None:
        self.reasons[numbers] = 1 + _NAMES.index(rule)

    def _batches(self, what: str) -> Iterator[tuple[int, list[TextPair]]]:
        """Yields batches of pairs, each after the index of its first pair."""
        with self.console.progress(what, len(self.reasons), "pairs") as counter:
            first = 0
            for batch in batches_of(itertools.chain.from_iterable(self.corpus.by_corpus())):
                yield first, batch
                first += len(batch)
                counter.advance(len(batch))

    def _apply_rules(self) -> None:
        """Applies the single-pair rules; stores the words and the keys of the remaining pairs."""
        for first, batch in self._batches("applying the rules"):
            pairs = list[TextPair]()
            for number, original in enumerate(batch, first):
                pair = self.rules.read(*original)
                self.repaired[number] = pair != original
                if rule := self.rules.reason(*pair):
                    self.reasons[number] = 1 + _NAMES.index(rule)
                    pair = ("", "")
                else:
                    self.keys[number] = key_of(*pair)
                pairs.append(pair)
            for side, ragged in enumerate(self.words):
                ids = [[id_of(word) for word in words_of(pair[side])] for pair in pairs]
                ragged.add(np.array([id for some in ids for id in some]), np.array([len(some) for some in ids]))

    def write(self, names: tuple[str, str]) -> dict[str, Any]:
        """Writes the pairs to the folder. Returns the counts and examples of the report."""
        dropped, examples = Counter[str](), dict[str, list[dict[str, Any]]]()
        with ExitStack() as stack:
            src_file, tgt_file, others = (
                stack.enter_context(writing(self.folder / name)) for name in (*names, DROPPED_FILE)
            )
            for first, batch in self._batches("writing the pairs"):
                for number, original in enumerate(batch, first):
                    if not self.reasons[number]:
                        # The flags `repaired` avoid a second, slow detection.
                        src, tgt = self.rules.read(*original) if self.repaired[number] else original
                        write_line(src_file, src)
                        write_line(tgt_file, tgt)
                        continue
                    rule = _NAMES[self.reasons[number] - 1]
                    dropped[rule] += 1
                    fields = [line.replace("\t", " ") for line in original]
                    write_line(others, "\t".join((str(number + 1), rule, *fields)))
                    if dropped[rule] <= EXAMPLES:
                        src, tgt = (line[:LONGEST_SHOWN] for line in original)
                        examples.setdefault(rule, []).append({"line": number + 1, "src": src, "tgt": tgt})
        return {
            "read": len(self.reasons),
            "kept": len(self.reasons) - dropped.total(),
            "repaired": int(self.repaired[self.left].sum()),
            "dropped": {rule: dropped[rule] for rule in RULES if dropped[rule]},
            "examples": examples,
        }
