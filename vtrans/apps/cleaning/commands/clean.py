"""`vtrans clean`: the options of a CleanOptions."""

from __future__ import annotations

from vtrans.apps.cleaning.clean_options import CleanOptions
from vtrans.commands.generated import generated
from vtrans.commands.lines import print_json
from vtrans.commands.shared_options import Json, Quiet
from vtrans.system.console import Console


@generated
def clean(*, options: CleanOptions, as_json: Json = False, quiet: Quiet = False) -> None:
    """Drop the bad pairs of a parallel text.

    The kept pairs are written to a folder, in order and under the names of the input files, for `vtrans prepare-bpe`.
    The dropped ones go to dropped.tsv, each with its line number and the reason; clean.json has counts and examples.
    """
    from vtrans.apps.cleaning.clean import clean as clean_text

    report = clean_text(options, Console(quiet=quiet))
    if as_json:
        print_json(report)
