"""One HTML page about one or several runs: scores, curves, translations and recipes.

The page holds everything that it shows: it loads nothing from elsewhere, and its text is escaped.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from vtrans.apps.analysis.charts import Series, line_chart
from vtrans.apps.analysis.run_history import RunHistory
from vtrans.config.keys import toml_value
from vtrans.score.metrics import compare
from vtrans.storage.model_file import read_blueprint
from vtrans.storage.run_folder import RunFolder
from vtrans.system.console import Console, duration
from vtrans.system.errors import InputError

SENTENCES = 3  # validation sentences whose translations are shown
MOST_STEPS = 6  # validations shown per sentence
PAGE = files("vtrans.apps.analysis") / "report.html"

# Title, kind of record, key.
CURVES = (
    ("Training loss per token", "train", "loss"),
    ("Validation loss per token (the logarithm of the perplexity)", "valid", "nll"),
    ("BLEU of the validation translations", "valid", "bleu"),
    ("chrF of the validation translations", "valid", "chrf"),
    ("Learning rate", "train", "lr"),
    ("Speed, target tokens per second", "train", "speed"),
)


def report(runs: Sequence[RunHistory], console: Console) -> str:
    """Returns the page as HTML; the console shows the progress."""
    title = ", ".join(run.name for run in runs)
    parts = (
        _legend(runs),
        _results(runs),
        _curves(runs),
        _significance(runs),
        _translations(runs),
        _recipes(runs),
    )
    body = list[str]()
    for part in console.counted(parts, "writing the report", len(parts), "parts"):
        body += part  # consuming a generator makes its part
    page = PAGE.read_text("utf-8").replace("{{TITLE}}", f"Training report: {escape(title)}")
    return page.replace("{{BODY}}", "\n".join(body))


def table(name: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns an HTML table with `name` as its label for screen readers. Columns of numbers are aligned right."""
    cells = [[escape(str(cell)) for cell in row] for row in rows]
    numeric = [all(_NUMBER.fullmatch(row[i]) for row in cells) and bool(cells) for i in range(len(header))]
    marks = [' class="number"' if right else "" for right in numeric]
    head = "".join(f'<th scope="col"{mark}>{escape(column)}</th>' for column, mark in zip(header, marks, strict=True))
    lines = [
        "<tr>" + "".join(f'<td dir="auto"{mark}>{cell}</td>' for cell, mark in zip(row, marks, strict=True)) + "</tr>"
        for row in cells
    ]
    # A region that scrolls in a narrow window, and that the keyboard reaches.
    region = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">'
    return f"{region}<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"


_NUMBER = re.compile(r"[-+−]?[\d,.]*\d(?:e-?\d+)?|–|")


def _legend(runs: Sequence[RunHistory]) -> Iterator[str]:
    if len(runs) == 1:
        return
    items = []
    for number, run in enumerate(runs):
        style = Series(run.name, number, ()).style
        key = f'<svg class="key" viewBox="0 0 26 10"><path class="line {style}" d="M1 5H25"/></svg>'
        items.append(f"<li>{key}{escape(run.name)}</li>")
    yield f'<ul class="legend">{"".join(items)}</ul>'


def _results(runs: Sequence[RunHistory]) -> Iterator[str]:
    yield "<h2>Results</h2>"
    rows = []
    for run in runs:
        best, train = run.best, run.train
        seconds = sum(record["seconds"] for record in train)
        tokens = sum(record["tgt_tokens"] for record in train)
        rows.append(
            (
                run.name,
                _parameters(run.run),
                f"{max(record['step'] for record in (*train, *run.valid)):,}",
                duration(seconds),
                f"{tokens / seconds:,.0f}" if seconds else "–",
                f"{best['step']:,}" if best else "–",
                *(_figure(best, key) for key in ("ppl", "bleu", "chrf")),
            )
        )
    header = ("run", "parameters", "updates", "training time", "tokens/s", "best step", "perplexity", "BLEU", "chrF")
    yield table("Results", header, rows)
    yield (
        '<p class="note">Training time leaves out validations. Tokens are those of the target. The scores are those '
        "of the best validation.</p>"
    )
    signatures = dict.fromkeys(str(run.best["signature"]) for run in runs if run.best and "signature" in run.best)
    for signature in signatures:
        yield f'<p class="note">Signature: <code>{escape(signature)}</code></p>'
    if len(signatures) > 1:
        yield "<p>The signatures differ, so BLEU and chrF of these runs are not comparable.</p>"


def _parameters(run: RunFolder) -> str:
    """Returns the number of parameters of a run's model, or a dash before the first checkpoint."""
    if not run.steps():
        return "–"
    layout = read_blueprint(run.choose_model().file).model.layout
    return f"{sum(map(math.prod, layout.shapes.values())):,}"


def _figure(record: Mapping[str, Any] | None, key: str) -> str:
    value = (record or {}).get(key)
    return "–" if value is None else f"{value:.2f}"


def _curves(runs: Sequence[RunHistory]) -> Iterator[str]:
    yield "<h2>Curves</h2>"
    figures = []
    for title, kind, key in CURVES:
        series = [Series(run.name, i, run.curve(kind, key)) for i, run in enumerate(runs)]
        if chart := line_chart(title, series):
            figures.append(f"<figure><figcaption>{escape(title)}</figcaption>{chart}</figure>")
    yield f'<div class="charts">{"".join(figures)}</div>'


def _significance(runs: Sequence[RunHistory]) -> Iterator[str]:
    rows = []
    for first, second in itertools.combinations(runs, 2):
        texts = [run.translations(run.best["step"]) if run.best else None for run in (first, second)]
        references = first.references
        if references is None or references != second.references or None in texts:
            continue
        systems = {run.name: {run.name: text or []} for run, text in zip((first, second), texts, strict=True)}
        try:
            comparisons = compare(systems, [references])
        except InputError:  # subword marks in the text of an untrained model
            continue
        for baseline, each in comparisons:
            values = (f"{baseline.value:.2f}", f"{each.value:.2f}", f"{each.difference:+.2f}", f"{each.p_value:.4f}")
            rows.append((first.name, second.name, each.name, *values))
    if rows:
        yield "<h2>Differences between the runs</h2>"
        yield table("Differences", ("run A", "run B", "metric", "A", "B", "B − A", "p"), rows)
        yield (
            '<p class="note">Paired bootstrap resampling (Koehn 2004) of the best validations. p is about the share of '
            "resampled texts in which the other run is better; a difference with p below 0.05 is significant.</p>"
        )


def _translations(runs: Sequence[RunHistory]) -> Iterator[str]:
    shown = [run for run in runs if run.sources and run.references]
    if not shown:
        return
    yield "<h2>Translations through the training</h2>"
    for i in range(min(SENTENCES, *(len(run.sources or ()) for run in shown))):
        first = shown[0]
        assert first.sources is not None
        yield f'<h3 dir="auto">{escape(first.sources[i])}</h3>'
        for run in shown:
            assert run.references is not None
            rows = list[tuple[str, str]]()
            for step in _chosen_steps(run):
                rows += [(f"{step:,}", text) for text in (run.translations(step) or [])[i : i + 1]]
            rows.append(("reference", run.references[i]))
            yield table(f"Translations by {run.name}", (run.name if len(runs) > 1 else "update", "translation"), rows)


def _chosen_steps(run: RunHistory) -> list[int]:
    """Returns at most MOST_STEPS steps of validations: early ones close together, the last one, and the best one."""
    steps = [record["step"] for record in run.valid if run.run.translations(record["step"]).is_file()]
    if len(steps) <= MOST_STEPS:
        return steps
    last = len(steps) - 1
    chosen = {steps[round(last * (k / (MOST_STEPS - 1)) ** 2)] for k in range(MOST_STEPS)}
    if run.best is not None and run.best["step"] in steps:
        chosen.add(run.best["step"])
    return sorted(chosen)


def _recipes(runs: Sequence[RunHistory]) -> Iterator[str]:
    flat = [
        {f"{section}.{key}": value for section, values in run.recipe.items() for key, value in values.items()}
        for run in runs
    ]
    keys = list(dict.fromkeys(itertools.chain.from_iterable(flat)))
    if not keys:
        return
    yield f"<h2>{'Recipe' if len(runs) == 1 else 'Recipes'}</h2>"
    header = ("key", *(run.name for run in runs))
    rows = [(key, *(toml_value(recipe[key]) if key in recipe else "–" for recipe in flat)) for key in keys]
    if len(runs) > 1:
        different = [row for row in rows if len(set(row[1:])) > 1]
        yield table("Differing values", header, different) if different else "<p>The recipes are equal.</p>"
    yield f"<details><summary>All {len(rows)} values</summary>{table('Recipe', header, rows)}</details>"
