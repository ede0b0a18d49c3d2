# `make help` lists the targets. `make demo` is the quickest way to see vtrans work.

PYTHON ?= python3
# The folder that `make demo` writes to. git ignores it.
DEMO ?= demo
# Options of the experiments. DATA=folder names a folder with train.en, train.de, valid.en, ... (.gz, .xz and .bz2
# files too); without it the text is downloaded, or is the built-in corpus. SRC and TGT are the languages. WORK and
# RUN are the folders to write to. RECIPE is another recipe, and SET="train.max_steps=500 ..." changes single values.
DATA ?=
SRC ?=
TGT ?=
WORK ?=
RUN ?=
RECIPE ?=
SET ?=
# Options of study: STUDY, a name or a file; STEPS or MINUTES of training per row; SEEDS="1 2"; ONLY="three-way untied" to
# train only those rows; and JOBS, the number of rows to train at a time.
STUDY ?=
STEPS ?=
MINUTES ?=
SEEDS ?=
ONLY ?=
JOBS ?=
# Option of student: the name of a chain, a TOML file, or the folder of a chain that was stopped.
CHAIN ?= multi30k
# Options of everyday: MODEL, a run folder, a model file or a name; and SHOW="urls prices", kinds to print wrong lines of.
MODEL ?=
SHOW ?=
# Options of pytest, such as TESTS="tests/test_score.py -k bleu". With them pytest runs in one process; without them the
# whole suite runs in one process per core, at most four.
TESTS ?=

BIN := .venv/bin
STAMP := .venv/.installed
# Put .venv first on the path, so that the commands run exactly as they are printed.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help install test quick check docs demo multi30k tatoeba iwslt14 wmt14-base wmt14-big study student \
  everyday serve clean

# $(call quote,TEXT) is one word of the shell. $(call option,--data,DATA) is an option with the value of a variable,
# $(call several,--seeds,SEEDS) one with several values, and $(call each,--set,SET) an option for each KEY=VALUE, whose
# value may contain blanks; all three are empty if the variable is.
quote = '$(subst ','\'',$(1))'
option = $(if $($(2)),$(1) $(call quote,$($(2))))
several = $(if $($(2)),$(1) $(foreach word,$($(2)),$(call quote,$(word))))
empty :=
space := $(empty) $(empty)
# A word without = continues the value before it. The mark, which the shell never sees, joins them.
mark := @@
each = $(subst $(space)$(mark),,$(foreach word,$($(2)),$(if $(findstring =,$(word)),$(1) $(call quote,$(word)),$(mark)$(call quote,$(space)$(word)))))
python := $(call quote,$(PYTHON))
# Plain names are printed without quotes.
demo := $(call quote,$(DEMO))
ifeq ($(shell printf %s $(demo) | grep -c '[^A-Za-z0-9_./-]'),0)
demo := $(DEMO)
endif

help:
	@echo 'make install           create .venv with vtrans and the tested versions of its dependencies'
	@echo 'make demo              train a translator on the built-in synthetic corpus, use it and score it (minutes)'
	@echo 'make test              run the tests'
	@echo 'make quick             run the tests that take no more than a moment each'
	@echo 'make check             run the linter, the formatter and the type checker, and build the documentation'
	@echo 'make docs              build the documentation in build/site'
	@echo 'make serve             serve the model in run/, or the one of the demo, with a web page'
	@echo $(call quote,make clean             delete $(DEMO)/)
	@echo
	@echo 'Experiments, from text to scores:'
	@echo 'make multi30k          image captions, English to German; 50 minutes on one CPU core'
	@echo 'make tatoeba           everyday sentences, English to German'
	@echo 'make iwslt14           TED talks, German to English; needs a GPU'
	@echo 'make wmt14-base        the base model of "Attention Is All You Need"; needs a GPU for a day or more'
	@echo 'make wmt14-big         the big model of that paper; needs many GPU-days'
	@echo 'make study             train variants of a recipe alike and print a table, such as STUDY=sharing; takes hours'
	@echo 'make student           train large models, and a small one on their translations: CHAIN=multi30k, tatoeba,'
	@echo '                       phrasebook or a file of your own; takes an hour or more'
	@echo 'make everyday          translate 1,000 everyday English lines with MODEL and check numbers, URLs, names, ...'
	@echo
	@echo 'DATA=folder names a folder with train.en, train.de, valid.en, ... to use. Without it the text is downloaded.'
	@echo 'Other options: SRC=en TGT=fr WORK=folder RUN=folder RECIPE=name SET="train.max_steps=500". The top of the'
	@echo 'Makefile describes them all, and recipes/README.md lists the recipes.'

install: $(STAMP)

$(STAMP): pyproject.toml .ci/constraints.txt
	@command -v $(python) >/dev/null || { \
	  echo $(call quote,$(PYTHON) was not found. Install Python 3.11 or later; or name yours: make install PYTHON=python3.12) >&2; \
	  exit 1; }
	@$(python) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'vtrans needs Python 3.11 or later. Name one: make install PYTHON=python3.12. This is' $(python) >&2; \
	  $(python) -V >&2; exit 1; }
	$(python) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -c .ci/constraints.txt -e '.[dev]'
	@touch $@

test: $(STAMP)
	$(BIN)/python -m pytest $(or $(TESTS),-n auto --maxprocesses 4 --dist worksteal)

quick: $(STAMP)
	$(BIN)/python -m pytest --quick -n auto --maxprocesses 4 --dist worksteal

check: $(STAMP) docs
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Warnings, such as links that lead nowhere, end the build. The variable silences an advertisement.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# $(call show,COMMAND) prints a command as a user would type it, then runs it. COMMAND may contain no comma.
show = @printf '\n$$ %s\n' $(call quote,$(1)); $(1)

demo: $(STAMP)
	@echo 'The built-in corpus is synthetic: English and German sentences generated by a small grammar.'
	$(call show,python recipes/phrasebook/generate.py --out $(demo)/text --train 40000 --valid 500 --test 1000 --seed 1)
	$(call show,vtrans prepare-bpe --src $(demo)/text/train.en --tgt $(demo)/text/train.de --valid-src $(demo)/text/valid.en --valid-tgt $(demo)/text/valid.de --vocab-size 4000 --out $(demo)/data)
	$(call show,vtrans train --data $(demo)/data --out $(demo)/run --recipe phrasebook)
	$(call show,vtrans average $(demo)/run)
	$(call show,vtrans translate --model $(demo)/run --input $(demo)/text/test.en --output $(demo)/test.hyp.de)
	$(call show,vtrans score $(demo)/text/test.de --hyp $(demo)/test.hyp.de)
	@echo
	@echo 'Synthetic text is easy to translate, so compare with exact matches and with a translation memory:'
	$(call show,python recipes/phrasebook/compare.py --data $(demo)/text $(demo)/test.hyp.de)
	@echo
	@echo 'Five sentences of the test set, and their translations:'
	$(call show,head -n 5 $(demo)/text/test.en)
	$(call show,head -n 5 $(demo)/text/test.en | vtrans translate --model $(demo)/run --quiet)
	@echo
	@echo 'To do the same with two files of your own, mine.en and its translation mine.de, one sentence per line:'
	@echo
	@echo '  . .venv/bin/activate'
	@echo '  vtrans prepare-bpe --src mine.en --tgt mine.de && vtrans train && vtrans average'
	@echo '  vtrans translate < new.en'

common = $(call option,--data,DATA) $(call option,--src,SRC) $(call option,--tgt,TGT) $(call option,--work,WORK) \
  $(call option,--recipe,RECIPE) $(call each,--set,SET)

multi30k tatoeba iwslt14 wmt14-base wmt14-big: $(STAMP)
	@python recipes/experiment.py $@ $(common) $(call option,--run,RUN)

study: $(STAMP)
	@python recipes/studies/study.py $(call quote,$(STUDY)) $(common) $(call option,--steps,STEPS) \
	  $(call option,--minutes,MINUTES) $(call several,--seeds,SEEDS) $(call several,--only,ONLY) $(call option,--jobs,JOBS)

student: $(STAMP)
	@python recipes/student/student.py $(call quote,$(CHAIN)) $(call option,--data,DATA) $(call option,--work,WORK)

everyday: $(STAMP)
	@python -m recipes.everyday.check $(call option,--model,MODEL) $(call option,--language,TGT) $(call several,--show,SHOW)

serve: $(STAMP)
	@for model in run $(demo)/run; do \
	  if [ -e "$$model/recipe.toml" ]; then exec vtrans serve "$$model"; fi; \
	done; \
	echo 'There is no model in run/ or' $(demo)/run/. 'Train one first: make demo' >&2; exit 1

clean:
	rm -rf -- $(call quote,$(DEMO))
