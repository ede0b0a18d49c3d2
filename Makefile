# make demo: the whole of it in a few minutes, on the built-in corpus.  make help: the other targets.

PYTHON ?= python3
# Where a target keeps what it makes; these folders are not under version control.
DEMO ?= demo
# For the targets of real text: DATA=folder gives the files (train.en, train.de, valid.en, ...; .gz is read
# alike), else they are fetched. SRC and TGT are the languages, WORK and RUN the folders for what is made,
# RECIPE another recipe, SET="train.max_steps=500 ..." changes to it.
DATA ?=
SRC ?=
TGT ?=
WORK ?=
RUN ?=
RECIPE ?=
SET ?=
# For sharing-study: STEPS or MINUTES of training a row, SEEDS="1 2", ONLY="three-way untied" of its rows.
STEPS ?=
MINUTES ?=
SEEDS ?=
ONLY ?=
# For back-translation: PAIRS to train on, of the rest the target side is translated back; or MONO, a file of it. For
# distillation: STUDENT="model.decoder_layers=1 ...".
PAIRS ?=
MONO ?=
STUDENT ?=
# Options of pytest, such as TESTS="tests/test_score.py -k bleu".
TESTS ?=

BIN := .venv/bin
STAMP := .venv/.installed
# The commands are printed and run as a user types them, once .venv is active.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help install test check demo multi30k tatoeba iwslt14 wmt14-base wmt14-big sharing-study back-translation distillation clean

help:
	@echo 'make install      .venv with vtrans and the versions known to work together'
	@echo 'make demo         train a translator on the built-in synthetic corpus and use it'
	@echo 'make test         the tests'
	@echo 'make check        linter, formatter and types, as they must pass'
	@echo 'make multi30k     real text: captions, English to German; an hour of two CPU cores'
	@echo 'make tatoeba      everyday sentences, English to German'
	@echo 'make iwslt14      talks, German to English; wants a GPU'
	@echo 'make wmt14-base   the base model of "Attention Is All You Need"; wants a GPU for a day or more'
	@echo 'make wmt14-big    its big model; wants many GPU-days'
	@echo 'make sharing-study  every variant of weight sharing, trained alike, in a table; takes hours'
	@echo 'make back-translation, make distillation  training on translations of a model, with and without'
	@echo 'make clean        remove $(DEMO)/'
	@echo
	@echo 'Real text: make multi30k DATA=folder uses train.en, train.de, valid.en, ... there; without DATA it is'
	@echo 'fetched. Also: SRC=en TGT=fr WORK=folder RUN=folder RECIPE=name SET="train.max_steps=500".'

install: $(STAMP)

$(STAMP): pyproject.toml .ci/constraints.txt
	@command -v $(PYTHON) >/dev/null || { \
	  echo 'There is no $(PYTHON): install Python 3.11 or later, or name one, as in `make install PYTHON=python3.12`.' >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "vtrans needs Python 3.11 or later, but $(PYTHON) is $$($(PYTHON) -V 2>&1);" \
	    'name another, as in `make install PYTHON=python3.12`.' >&2; \
	  exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -c .ci/constraints.txt -e '.[dev]'
	@touch $@

test: $(STAMP)
	$(BIN)/python -m pytest $(TESTS)

check: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# $(call show,COMMAND): print a command as one would type it, then run it. No comma and no ' in it.
show = @printf '\n$$ %s\n' '$(1)'; $(1)

demo: $(STAMP)
	@echo 'The built-in corpus is synthetic: sentences of a small grammar, English and German.'
	$(call show,python recipes/phrasebook/generate.py --out $(DEMO)/text --train 40000 --valid 500 --test 1000 --seed 1)
	$(call show,vtrans prepare-bpe --src $(DEMO)/text/train.en --tgt $(DEMO)/text/train.de --valid-src $(DEMO)/text/valid.en --valid-tgt $(DEMO)/text/valid.de --vocab-size 4000 --out $(DEMO)/data)
	$(call show,vtrans train --data $(DEMO)/data --out $(DEMO)/run --recipe phrasebook)
	$(call show,vtrans average $(DEMO)/run)
	$(call show,vtrans translate --model $(DEMO)/run --input $(DEMO)/text/test.en --output $(DEMO)/test.hyp.de)
	$(call show,vtrans score $(DEMO)/text/test.de --hyp $(DEMO)/test.hyp.de)
	@echo
	@echo 'Synthetic text is easy; beside BLEU stand the exact matches and a translation memory:'
	$(call show,python recipes/phrasebook/compare.py --data $(DEMO)/text $(DEMO)/test.hyp.de)
	@echo
	@echo 'Five of the unseen sentences, and what the model makes of them:'
	$(call show,head -n 5 $(DEMO)/text/test.en)
	$(call show,head -n 5 $(DEMO)/text/test.en | vtrans translate --model $(DEMO)/run --quiet)
	@echo
	@echo 'The same with two files of your own, a sentence a line, mine.en and its translation mine.de:'
	@echo
	@echo '  . .venv/bin/activate'
	@echo '  vtrans prepare-bpe --src mine.en --tgt mine.de && vtrans train && vtrans average'
	@echo '  vtrans translate < new.en'

multi30k tatoeba iwslt14 wmt14-base wmt14-big: $(STAMP)
	@python recipes/experiment.py $@ $(if $(DATA),--data '$(DATA)') $(if $(SRC),--src $(SRC)) $(if $(TGT),--tgt $(TGT)) \
	  $(if $(WORK),--work '$(WORK)') $(if $(RUN),--run '$(RUN)') $(if $(RECIPE),--recipe '$(RECIPE)') $(foreach x,$(SET),--set '$(x)')

sharing-study: $(STAMP)
	@python recipes/sharing/study.py $(if $(DATA),--data '$(DATA)') $(if $(SRC),--src $(SRC)) $(if $(TGT),--tgt $(TGT)) \
	  $(if $(WORK),--work '$(WORK)') $(if $(RECIPE),--recipe '$(RECIPE)') $(foreach x,$(SET),--set '$(x)') \
	  $(if $(STEPS),--steps $(STEPS)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEEDS),--seeds $(SEEDS)) \
	  $(if $(ONLY),--only $(ONLY))

back-translation distillation: $(STAMP)
	@python recipes/synthetic.py $@ $(if $(DATA),--data '$(DATA)') $(if $(SRC),--src $(SRC)) $(if $(TGT),--tgt $(TGT)) \
	  $(if $(WORK),--work '$(WORK)') $(if $(RECIPE),--recipe '$(RECIPE)') $(foreach x,$(SET),--set '$(x)') \
	  $(if $(PAIRS),--pairs $(PAIRS)) $(if $(MONO),--mono '$(MONO)') $(foreach x,$(STUDENT),--student '$(x)')

clean:
	rm -rf '$(DEMO)'
