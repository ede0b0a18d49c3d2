"""Settings as frozen dataclasses: recipes and the defaults of commands.

Each default of a recipe has its one address here; data/options.py has those of prepare-bpe. The metadata of a field is
a `Key`, which holds everything else that the program knows about the setting: its range, its help, whether a resumed
run may change it. A recipe describes a model and its training completely, except the vocabulary, which comes from the
data folder.
"""

from vtrans.config.engine import CACHE_VARIABLE, DECODING_PRECISIONS, ENGINES, EngineConfig
from vtrans.config.model import TIE_FORMS, ModelConfig, check_tie, contradiction, resolve_tie
from vtrans.config.recipe import SECTIONS, Recipe, check_together, section_from
from vtrans.config.search import SearchConfig
from vtrans.config.train import KERNELS, PRECISIONS, SCHEDULES, TrainConfig

__all__ = [
    "CACHE_VARIABLE",
    "DECODING_PRECISIONS",
    "DEFAULT_FREQUENT",
    "DEFAULT_RECIPE",
    "DEFAULT_RUN",
    "DEFAULT_TRANSLATIONS",
    "ENGINES",
    "KERNELS",
    "MBR_BEAM",
    "MBR_METRICS",
    "MBR_SAMPLES",
    "NEAREST",
    "NEAREST_OF_STEP",
    "PRECISIONS",
    "RETRY_NGRAM",
    "SCHEDULES",
    "SECTIONS",
    "TIE_FORMS",
    "EngineConfig",
    "ModelConfig",
    "Recipe",
    "SearchConfig",
    "TrainConfig",
    "check_tie",
    "check_together",
    "contradiction",
    "resolve_tie",
    "section_from",
]

DEFAULT_RECIPE = "small"
DEFAULT_RUN = "run"
MBR_METRICS = ("chrf", "bleu")
MBR_BEAM, MBR_SAMPLES = 16, 64  # candidates of a search by `vtrans translate`, and samples
RETRY_NGRAM = 3  # `no_repeat_ngram` of a second search
# Sizes of a shortlist: target subwords per source subword, and those that every sentence may use.
DEFAULT_TRANSLATIONS, DEFAULT_FREQUENT = 8, 1500
# Neighbours that `vtrans inspect` shows of a subword, and of a step of a translation.
NEAREST, NEAREST_OF_STEP = 10, 3
