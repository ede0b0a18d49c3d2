# `make help` lists the targets. `make demo` is the quickest way to see vtrans work.

PYTHON ?= python3
# The folder that `make demo` writes to. git ignores it.
DEMO ?= demo
# Options of the experiments. DATA=folder names a folder with train.en, train.de, valid.en, ... (.gz, .xz and .bz2
# files too); multi30k and tatoeba download their text without it. SRC and TGT are the languages. WORK and
# RUN are the folders to write to. RECIPE is another recipe, and SET="train.max_steps=500 ..." changes single values.
DATA ?=
SRC ?=
TGT ?=
WORK ?=
RUN ?=
RECIPE ?=
SET ?=
# Options of study, as of `vtrans study`: STUDY, a file or the name of one in recipes/studies; STEPS or MINUTES of training
# per row; SEEDS="1 2"; and ONLY="three-way untied" to train only those rows.
STUDY ?=
STEPS ?=
MINUTES ?=
SEEDS ?=
ONLY ?=
# Option of student: a file, as of `vtrans student`, or the name of one in recipes/student.
CHAIN ?= multi30k
# Option of everyday-model: PAIRS, a PO file or other document with translations, or a folder of them.
PAIRS ?=
# Options of everyday: MODEL, a run folder, a model file or a name; and SHOW="urls prices", kinds to print wrong lines of.
MODEL ?=
SHOW ?=
# Option of gpu-check: cuda, cuda:N, mps or cpu.
DEVICE ?= cuda
# Option of soak: MINUTES, after which no further round begins; 10 by default.
# Options of check-versions, such as VERSIONS="--python 3.11 3.14 --torch 2.6.0 2.13.0".
VERSIONS ?= --lowest
# Options of pytest, such as TESTS="tests/score/test_score.py -k bleu". With them pytest runs in one process; without them the
# whole suite runs in one process per core, at most four.
TESTS ?=

# What `make check-cpus` runs.
NUMERICAL := tests/engines tests/model tests/search tests/training/optimization \
  tests/training/test_kernel_choice.py

BIN := .venv/bin
STAMP := .venv/.installed
# Put .venv first on the path, so that the commands run exactly as they are printed.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help install test quick soak check-cpus check-versions check style types docs demo multi30k tatoeba iwslt14 wmt14-base \
  wmt14-big study student speedrun everyday everyday-model serve gpu-check clean

# The programs read the variables from the environment, so that no shell changes a value.
export PYTHON DEMO DATA SRC TGT WORK RUN RECIPE SET STUDY STEPS MINUTES SEEDS ONLY CHAIN PAIRS MODEL SHOW DEVICE

help:
	@echo 'make install           create .venv with vtrans and the tested versions of its dependencies'
	@echo 'make demo              train a translator on everyday sentences, use it and score it (minutes)'
	@echo 'make test              run the tests'
	@echo 'make quick             run the tests that take no more than a moment each'
	@echo 'make soak              draw new cases for the laws among the tests, for ten minutes or MINUTES=180'
	@echo 'make check             run the linter, the formatter and the type checker, and build the documentation'
	@echo 'make check-cpus        run the numerical tests with AVX-512, AVX2 and plain x86'
	@echo 'make check-versions    run a part of the tests with the lowest versions of the dependencies; it needs uv'
	@echo 'make docs              build the documentation in build/site'
	@echo 'make serve             serve the model in run/, or the one of the demo, with a web page'
	@echo 'make gpu-check         check and measure a GPU in ten minutes, and write gpu-check.json to send'
	@printf 'make clean             delete %s/\n' "$$DEMO"
	@echo
	@echo 'Experiments, from text to scores:'
	@echo 'make multi30k          image captions, English to German; 50 minutes on one CPU core'
	@echo 'make tatoeba           everyday sentences, English to German'
	@echo 'make iwslt14           TED talks, German to English; needs a GPU'
	@echo 'make wmt14-base        the base model of "Attention Is All You Need"; needs a GPU for a day or more'
	@echo 'make wmt14-big         the big model of that paper; needs many GPU-days'
	@echo 'make study             train variants of a recipe alike and print a table; takes hours: STUDY=sharing, or a'
	@echo '                       file of your own (recipes/README.md)'
	@echo 'make student           train large models, and a small one on their translations: CHAIN=multi30k (an hour),'
	@echo '                       tatoeba (hours), demo (minutes) or a file of your own'
	@echo 'make speedrun          measure minutes of one core to 39 BLEU on image captions; recipes/speedrun has the rules'
	@echo 'make everyday          translate 1,000 everyday English lines with MODEL and check numbers, URLs, names, ...'
	@echo 'make everyday-model    train the model en-de; it also learns the catalogues in PAIRS=folder; takes hours'
	@echo
	@echo 'DATA=folder names a folder with train.en, train.de, valid.en, ... to use. multi30k and tatoeba download theirs.'
	@echo 'Other options: SRC=en TGT=fr WORK=folder RUN=folder RECIPE=name SET="train.max_steps=500". The top of the'
	@echo 'Makefile describes them all, and recipes/README.md lists the recipes.'

install: $(STAMP)

$(STAMP): pyproject.toml .ci/constraints.txt
	@command -v "$$PYTHON" >/dev/null || { \
	  echo "$$PYTHON was not found. Install Python 3.11 or later; or name yours: make install PYTHON=python3.12" >&2; \
	  exit 1; }
	@"$$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "vtrans needs Python 3.11 or later. Name one: make install PYTHON=python3.12. This is $$PYTHON" >&2; \
	  "$$PYTHON" -V >&2; exit 1; }
	"$$PYTHON" -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --no-compile -c .ci/constraints.txt -e '.[dev]'
	@touch $@

test: $(STAMP)
	$(BIN)/python -m pytest $(or $(TESTS),-n auto --maxprocesses 4 --dist worksteal)

quick: $(STAMP)
	$(BIN)/python -m pytest --quick -n auto --maxprocesses 4 --dist worksteal

soak: $(STAMP)
	$(BIN)/python tests/soak/laws.py --minutes $(or $(MINUTES),10)

# The first word of each limit is for torch and the compiled decoder, the others are for oneDNN and MKL.
check-cpus: $(STAMP)
	for limits in 'avx512 AVX512_CORE AVX512' 'avx2 AVX2 AVX2' 'default SSE41 SSE4_2'; do \
	  set -- $$limits; \
	  ATEN_CPU_CAPABILITY=$$1 ONEDNN_MAX_CPU_ISA=$$2 MKL_ENABLE_INSTRUCTIONS=$$3 \
	    $(BIN)/python -m pytest $(or $(TESTS),$(NUMERICAL)) || exit; \
	done

check-versions: $(STAMP)
	$(BIN)/python tests/soak/versions.py $(VERSIONS)

# Building the documentation and most of checking types use one core each.
check: $(STAMP)
	@$(MAKE) -j 2 docs style types

style: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(STAMP)
	$(BIN)/mypy

# Warnings, such as links that lead nowhere, end the build. The variable silences an advertisement.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

demo multi30k tatoeba iwslt14 wmt14-base wmt14-big study student speedrun everyday everyday-model: $(STAMP)
	@python recipes/make.py $@

serve: $(STAMP)
	@for model in run "$$DEMO/run"; do \
	  if [ -e "$$model/recipe.toml" ]; then exec vtrans serve "$$model"; fi; \
	done; \
	echo "There is no model in run/ or $$DEMO/run/. Train one first: make demo" >&2; exit 1

gpu-check: $(STAMP)
	@python tests/gpu_check.py --device "$$DEVICE"

clean:
	rm -rf -- "$$DEMO"
