"""Validation: the likelihood of the validation pairs, and BLEU and chrF of their translations."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vtrans.config import SearchConfig, TrainConfig
from vtrans.config.keys import idle_because, keys_of
from vtrans.data.batches import collate
from vtrans.data.epochs import plan_epoch
from vtrans.data.store import DataFolder, TokenStore
from vtrans.engines.torch_engine import TorchEngine
from vtrans.model.checkpoint import LoadedModel
from vtrans.score.metrics import CorpusMetric, corpus_scores, deciding_metric, fitting_tokenizer
from vtrans.system.console import duration
from vtrans.system.errors import AbandonedError, LogprobsError
from vtrans.system.files import named_os_errors, write_atomically
from vtrans.system.own_code import is_own, own_class
from vtrans.system.process import release_memory
from vtrans.text.vocabulary import EOS_ID
from vtrans.training.optimization.loss import Objective, autocast
from vtrans.training.parts import Job
from vtrans.translate.steps.line import Line
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.translator import Translator

MOST_READ = 1000  # validation pairs read to choose a tokenizer


def translated(train: TrainConfig, pairs: int) -> int:
    """Returns how many of `pairs` validation pairs are translated."""
    return min(train.valid_sentences or pairs, pairs)


def signature_end(train: TrainConfig, search: SearchConfig, data: DataFolder) -> str:
    """Returns the settings on which the translations depend, except those that have their defaults, as the end of the
    signature of BLEU and chrF. Scores are comparable only if these ends are equal."""
    validated = search.with_beam(train.valid_beam)
    greedy = search.stop == "count" and train.valid_beam == 1  # compares no hypotheses
    settings: dict[str, Any] = {}
    for name, key in keys_of(SearchConfig).items():
        value = getattr(validated, name)
        if key.speed_only or (key.ranks_only and greedy):
            continue
        if value != getattr(SearchConfig, name) and not idle_because(validated, name):
            settings[name] = value
    if (tokenizers := {*tokenizers_of(data).values()}) != {"13a"}:
        settings["tokenizers"] = "-".join(sorted(tokenizers))
    settings["limit"] = str(data.length_limit).replace(" ", "")
    settings["sentences"] = translated(train, len(data.valid))
    return "".join(f"|{name}:{value}" for name, value in settings.items())


def _chosen(data: DataFolder, count: int) -> tuple[list[int], dict[str | None, list[int]]]:
    """Returns the pairs to translate, taking the first pairs of each target language in turn, and the rows of these
    pairs per target language; None is the language of a model without tags."""
    code_of = {data.src_vocab.id_of(tag): code for code, tag in data.tags.items()}
    pairs_of: dict[str | None, list[int]] = {}
    for i in range(len(data.valid) if code_of else count):
        pairs_of.setdefault(code_of[int(data.valid.src(i)[0])] if code_of else None, []).append(i)
    places = sorted((place, i, code) for code, pairs in pairs_of.items() for place, i in enumerate(pairs))
    chosen = sorted((i, code) for _, i, code in places[:count])
    rows: dict[str | None, list[int]] = {}
    for row, (_, code) in enumerate(chosen):
        rows.setdefault(code, []).append(row)
    return [i for i, _ in chosen], rows


def tokenizers_of(data: DataFolder) -> dict[str | None, str]:
    """Returns BLEU's tokenizer for each target language; None is the language of a model without tags."""
    chosen, rows = _chosen(data, min(len(data.valid), MOST_READ))
    known = {pair.tgt for pair in data.languages}
    only = next(iter(known)) if len(known) == 1 else ""
    return {
        to: fitting_tokenizer([data.valid.text("tgt", chosen[row]) for row in some], to or only)
        for to, some in rows.items()
    }


def metric_of(data: DataFolder) -> str:
    """Returns the metric that ranks checkpoints: chrF if a target language needs it or if the target languages need
    different tokenizers; otherwise BLEU."""
    tokenizers = set(tokenizers_of(data).values())
    return "chrf" if len(tokenizers) > 1 else deciding_metric(*tokenizers)


def unigram_nll(data: DataFolder) -> float:
    """Returns the negative log-likelihood, in nats per validation token including EOS, of a unigram model of the target
    training text. Add-one smoothing keeps probabilities above 0."""
    size = len(data.tgt_vocab)

    def counts(store: TokenStore) -> NDArray[np.int64]:
        counts_V = store.counts("tgt", size)
        counts_V[EOS_ID] += len(store)
        return counts_V

    train_V, valid_V = counts(data.train) + 1, counts(data.valid)
    return float(valid_V @ -np.log(train_V / train_V.sum()) / valid_V.sum())


class Validation:
    """Evaluates an objective's model on the validation pairs of a run."""

    def __init__(self, job: Job, objective: Objective) -> None:
        data, recipe = job.data, job.recipe
        self.data, self.run, self.recipe, self.device, self.console = data, job.run, recipe, job.device, job.console
        self.objective = objective
        self.count = translated(recipe.train, len(data.valid))
        self.chosen, self.rows = _chosen(data, self.count)
        self.signature_end = signature_end(recipe.train, recipe.search, data)
        self.tokenizers = tokenizers_of(data)
        best = recipe.train.best_metric
        self.user_metrics = {best: own_class(best, CorpusMetric, "best_metric")()} if is_own(best) else {}
        self._translator(0)  # raises InputError for search settings that contradict each other or the data

    def measure(self, step: int, cancelled: Callable[[], bool] = lambda: False) -> dict[str, Any] | None:
        """Returns the record for metrics.jsonl (negative log-likelihood per token in nats, BLEU and chrF) and prints
        it. Writes the translations to the run folder. Calls `cancelled` before each batch and each step of a search,
        and returns None once it is true. Leaves the model in training mode."""
        release_memory()
        self.objective.model.eval()
        try:
            return self._measured(step, cancelled)
        except AbandonedError:
            return None
        finally:
            self.objective.model.train()
            release_memory()

    def _measured(self, step: int, cancelled: Callable[[], bool]) -> dict[str, Any]:
        began = time.monotonic()
        nll = self._nll(cancelled)
        release_memory()
        store, config = self.data.valid, self.recipe.train
        sources, references = ([store.text(side, i) for i in self.chosen] for side in ("src", "tgt"))
        try:
            hypotheses = self._translated(step, sources, cancelled)
        except LogprobsError as error:  # training may recover, so do not lose its updates
            self.console.warn(f"step {step:,}: {error} Its translations count as blank.")
            hypotheses = [""] * len(sources)
        tokenizers = set(self.tokenizers.values())
        scores = corpus_scores(hypotheses, references, next(iter(tokenizers)) if len(tokenizers) == 1 else "13a")
        by_language = {
            to: corpus_scores([hypotheses[i] for i in rows], [references[i] for i in rows], self.tokenizers[to])
            for to, rows in self.rows.items()
            if to is not None
        }
        self._write_translations(step, sources, references, hypotheses)
        finite = math.isfinite(nll)
        search = f"beam {config.valid_beam}" if config.valid_beam > 1 else "greedy"
        user_scores = {
            name: metric.corpus_score(hypotheses, [references]).score for name, metric in self.user_metrics.items()
        }
        record = {
            "kind": "valid",
            "step": step,
            "nll": nll if finite else None,  # JSON has no NaN
            "ppl": math.exp(min(nll, 50)) if finite else None,
            "bleu": scores["bleu"],
            "chrf": scores["chrf"],
            "signature": f"{scores['signature']}{self.signature_end}",
            **user_scores,
        }
        parts = ""
        if by_language:
            for metric in ("bleu", "chrf"):
                record |= {f"{metric}_{code}": values[metric] for code, values in by_language.items()}
            parts = " (" + ", ".join(f"{code} {values['bleu']:.2f}" for code, values in by_language.items()) + ")"
        self.console.info(
            f"valid at step {step:,}: ppl {math.exp(min(nll, 50)):.2f}  bleu {scores['bleu']:.2f}{parts}  "
            f"chrf {scores['chrf']:.2f}{''.join(f'  {name} {value:.2f}' for name, value in user_scores.items())}  "
            f"({search}, at most {self.data.length_limit} subwords; {duration(time.monotonic() - began)})"
        )
        for i in range(min(config.samples, len(sources))):
            self.console.info(f"  src {sources[i]}\n  ref {references[i]}\n  hyp {hypotheses[i]}")
        return record

    def _translated(self, step: int, sources: Sequence[str], cancelled: Callable[[], bool]) -> list[str]:
        """Translates the chosen sources, each into the target language of its pair."""
        translator, hypotheses = self._translator(step), [""] * len(sources)
        with self.console.progress("translating the validation text", len(sources), "sentences") as counter:
            for to, rows in self.rows.items():
                lines = {i: Line(number, sources[i]) for number, i in enumerate(rows, 1)}
                options = TranslateOptions(to=to, abandoned=cancelled)
                translator.translate_window([*lines.values()], options, ready=lambda line: counter.advance())
                for i, line in lines.items():
                    hypotheses[i] = line.translations[0].text
        return hypotheses

    def _translator(self, step: int) -> Translator:
        data, search = self.data, self.recipe.search
        vocabularies = data.src_vocab, data.tgt_vocab
        loaded = LoadedModel(
            self.objective.model, *vocabularies, search, {"step": step}, None, data.languages, data.tags
        )
        # No second search for repetitive translations, because an untrained model repeats itself on most lines. The
        # limit keeps these lines from dominating the word counts.
        validated = search.with_beam(self.recipe.train.valid_beam)
        return Translator(TorchEngine([loaded]), validated, retry=False, limit=data.length_limit.of)

    def _write_translations(
        self, step: int, sources: Sequence[str], references: Sequence[str], hypotheses: Sequence[str]
    ) -> None:
        """Writes the translations with their sources and references, for users and reports."""
        run = self.run
        with named_os_errors(run.validation):
            run.validation.mkdir(parents=True, exist_ok=True)
        texts = ((run.valid_src, sources), (run.valid_ref, references), (run.translations(step), hypotheses))
        for path, lines in texts:
            write_atomically(path, "".join(f"{line}\n" for line in lines).encode())

    def _nll(self, cancelled: Callable[[], bool]) -> float:
        """Returns the mean negative log-likelihood in nats per target token, including EOS, over all pairs."""
        store, config = self.data.valid, self.recipe.train
        losses, tokens = list[Tensor](), 0  # read at the end, so that batches do not synchronise the device
        with torch.inference_mode():
            budget = max(config.batch_tokens, int(torch.maximum(store.src_lengths, store.tgt_lengths).max()) + 1)
            for numbers in plan_epoch(store.src_lengths, store.tgt_lengths, budget, 0, 1):
                if cancelled():
                    raise AbandonedError("the validation was cancelled.")
                pairs = numbers.tolist()
                batch = collate([store.src(i) for i in pairs], [store.tgt(i) for i in pairs]).to(self.device)
                with autocast(self.device, config.precision):
                    losses.append(self.objective(batch)[1])
                tokens += batch.tgt_tokens
        return float(sum(torch.stack(losses).tolist())) / tokens
