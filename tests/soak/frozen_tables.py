"""The options, models, programs, requests and mistakes of the cases of `frozen.py`."""

from __future__ import annotations

from frozen_texts import DOCUMENTS

SHIPPED = "tatoeba-en-de"

# The data of the small models, and the models: their data and their recipe. They learn 200 pairs nearly by heart.
PAIRS = "--valid-src text/valid.en --valid-tgt text/valid.de --vocab-size 350 --threads 1 --align"
FORTH = "--src text/train.en --tgt text/train.de"
DATA = {
    "joint": f"{FORTH} {PAIRS}",
    "separate": f"{FORTH} {PAIRS} --separate",
    "both-ways": f"{FORTH} --tag >>de<< --src text/train.de --tgt text/train.en --tag >>en<< "
    f"--src-lang en --src-lang de --tgt-lang de --tgt-lang en {PAIRS}",
    "fuzzy": f"{FORTH} {PAIRS} --fuzzy",
}
MODELS = {
    "plain": ("joint", ""),
    "aligned": ("joint", "model.alignment_layer=1 train.guided_alignment=0.1 model.tie=tgt-softmax train.noise=0.4"),
    "rotary": ("joint", "model.positions=rotary model.norm=pre model.activation=gelu"),
    "learned": ("joint", "model.positions=learned model.share_layers=all model.tie=none model.projection_bias=true"),
    "ssru": ("joint", "model.autoregression=ssru model.activation=swish"),
    "decoder-only": ("joint", "model.architecture=decoder-only model.encoder_layers=0 model.decoder_layers=3"),
    "separate": ("separate", "model.positions=rotary"),
    "both-ways": ("both-ways", ""),
    "fuzzy": ("fuzzy", ""),
}
RECIPE = (
    "model.d_model=64 model.d_ff=128 model.heads=2 model.encoder_layers=2 model.decoder_layers=2 model.dropout=0.0 "
    "train.learning_rate=0.004 train.warmup=30 train.max_steps=400 train.batch_tokens=400 train.checkpoint_every=400 "
    "train.valid_sentences=2 train.samples=0"
)
CALIBRATED_MODELS = ("plain", "separate")

# Options of `vtrans translate` for PLAIN, by the name of the case.
TWO_BEST = "--tsv --nbest 2 "
SEARCH = {
    "beam-1": "--tsv --beam 1",
    "beam-4": "--tsv --beam 4 --nbest 4",
    "beam-8": "--tsv --beam 8 --nbest 8",
    "no-repeat-ngram-1": TWO_BEST + "--no-repeat-ngram 1",
    "no-repeat-ngram-2": TWO_BEST + "--no-repeat-ngram 2",
    "min-length": TWO_BEST + "--min-length 9",
    "max-length": TWO_BEST + "--max-length 5",
    "max-ratio": TWO_BEST + "--max-ratio 0.7",
    "alpha-0": TWO_BEST + "--alpha 0",
    "alpha-negative": TWO_BEST + "--alpha -1",
    "length-penalty": TWO_BEST + "--alpha 1.5 --length-penalty length",
    "gnmt": TWO_BEST + "--alpha 1.5 --length-penalty gnmt",
    "stop-current": TWO_BEST + "--stop current",
    "stop-exhaustive": TWO_BEST + "--stop exhaustive --beam 3",
    "stop-shrink": TWO_BEST + "--stop shrink --beam 6",
    "repetition-penalty": TWO_BEST + "--repetition-penalty 1.5",
    "suppress": TWO_BEST + "--suppress . --suppress ,",
    "groups": "--tsv --beam 6 --beam-groups 3 --diversity 0.8 --nbest 6",
    "groups-of-one": "--tsv --beam 4 --beam-groups 4 --nbest 4",
    "max-source": TWO_BEST + "--max-source 6",
    "batch-1": TWO_BEST + "--batch-tokens 1",
    "batch-40": TWO_BEST + "--batch-tokens 40",
    "raw": TWO_BEST + "--raw",
    "no-retry": TWO_BEST + "--no-retry --max-length 6",
    "prefix": TWO_BEST + "--prefix prefix.txt",
    "prefix-rules": TWO_BEST + "--prefix prefix.txt --no-repeat-ngram 2 --min-length 8 --beam 5",
    "constraints": TWO_BEST + "--constraints constraints.jsonl",
    "constraints-rules": TWO_BEST + "--constraints constraints.jsonl --no-repeat-ngram 3 --repetition-penalty 1.2",
    "constraints-prefix": TWO_BEST + "--constraints constraints.jsonl --prefix prefix.txt",
    "constraints-of-prefix": TWO_BEST + "--constraints after.jsonl --prefix prefix.txt",
    "constraints-short": TWO_BEST + "--constraints constraints.jsonl --max-length 6",
    "constraints-stop": TWO_BEST + "--constraints constraints.jsonl --stop exhaustive",
    "glossary": TWO_BEST + "--glossary terms.tsv",
    "glossary-rules": TWO_BEST + "--glossary terms.tsv --no-repeat-ngram 2",
    "glossary-protect": TWO_BEST + "--glossary terms.tsv --protect",
    "protect": TWO_BEST + "--protect",
    "protect-pattern": TWO_BEST + "--protect-pattern '[A-Z][a-z]+' --protect-pattern 'red'",
    "protect-groups": TWO_BEST + "--protect --beam 4 --beam-groups 2",
    "memory": TWO_BEST + "--memory memory.po",
    "memory-glossary": "--json --memory memory.po --glossary terms.tsv --protect --alignments",
    "sample": "--tsv --sample --seed 3 --nbest 2",
    "sample-top-k": "--tsv --sample --top-k 5 --temperature 0.7",
    "sample-top-p": "--tsv --sample --top-p 0.8 --epsilon 0.02 --protect",
    "sample-rules": "--tsv --sample --no-repeat-ngram 2 --min-length 5 --suppress .",
    "mbr-chrf": "--scores --mbr chrf --beam 8 --nbest 2",
    "mbr-bleu": "--scores --mbr bleu --protect",
    "mbr-samples": "--scores --mbr chrf --sample --mbr-samples 8 --epsilon 0.02",
    "text": "",
    "scores": "--scores",
    "json": "--json --nbest 2",
    "alignments": "--alignments --nbest 2",
    "alignments-protect": "--json --alignments --protect --raw",
    "alignments-cut": "--json --alignments --max-source 5",
    "counts": "",
}
CALIBRATED = {  # needs a calibration
    "confidence": "--confidence --nbest 2",
    "confidence-json": "--confidence --json --alignments",
    "confidence-cut": "--confidence --json --max-source 6",
    "confidence-memory": "--confidence --memory memory.po --protect",
    "min-confidence": "--min-confidence 0.5 --confidence",
    "min-confidence-nbest": "--min-confidence 0.8 --tsv --nbest 2",
}
# Options of `vtrans translate` for PLAIN that are refused; after !, whole commands.
MISTAKES = """
--memory memory.po --chunk-lines 5 --output out
--beam 0
--beam wide
--baem 3
--beam 4 --nbest 5
--beam 4 --beam-groups 3
--beam-groups 2 --stop shrink
--diversity 2
--stop never
--alpha 99
--max-length -1
--repetition-penalty 0.5
--suppress nosuchpiece
--sample --constraints constraints.jsonl
--sample --glossary terms.tsv
--stop shrink --constraints constraints.jsonl
--beam 4 --beam-groups 2 --glossary terms.tsv
--constraints bad.jsonl
--constraints small.txt
--constraints after.jsonl --prefix prefix.txt
--prefix long.txt
--prefix none.txt
--glossary bad.tsv
--glossary none.tsv
--memory bad.po
--memory none.po
--protect-pattern (
--mbr rouge
--mbr chrf --beam 1
--mbr-samples 5
--top-k 3
--temperature 0 --sample
--sample --epsilon 2
--min-confidence 2
--tsv --json
--scores --tsv
--nbest 0
--precision int4
--precision float16 --engine compiled
--engine fast
--device gpu
--device cuda:7
--kernels mkl
--kernels blas --engine compiled
--shortlist
--to fr
--weight 2
--weight 0 --weight 0 --model tatoeba-en-de
--threads 0
--processes 0
--output plain.txt
--output none/out.txt
--chunk-lines 5
--shard 1/2
--chunk-lines 5 --output out --shard 3/2
--line-buffered --chunk-lines 5 --output out
--format po
--overwrite
--model none.safetensors
--model terms.tsv
--model models/plain/averaged.safetensors
--model models/separate/averaged.safetensors
!translate --input none.txt --model tatoeba-en-de
!translate --model models
!translate --model models/both-ways/averaged.safetensors --input small.txt
!translate --model models/both-ways/averaged.safetensors --input small.txt --to fr
!translate --model models/rotary/averaged.safetensors --input small.txt --confidence
!translate --model models/rotary/averaged.safetensors --input small.txt --shortlist
!translate plain.txt --tsv --model tatoeba-en-de
!translate bad.po --model tatoeba-en-de
!translate terms.tsv --model tatoeba-en-de
!translate none.po --model tatoeba-en-de
!translate plain.txt small.txt --model tatoeba-en-de
!translate plain.txt -o plain.txt --model tatoeba-en-de
!logprob plain.txt --model tatoeba-en-de
!logprob plain.txt long.txt --model tatoeba-en-de
!logprob plain.txt plain.txt --model tatoeba-en-de --to fr
!score plain.txt --hyp long.txt
!score empty.txt --hyp empty.txt
!collect none
!collect models
!attend tatoeba-en-de ''
!attend tatoeba-en-de 'A dog' --layer 99
!serve --port 99999 tatoeba-en-de
!serve models/rotary/averaged.safetensors --pair en=x
!serve tatoeba-en-de tatoeba-en-de --port 0
!serve tatoeba-en-de --glossary bad.tsv --port 0
!calibrate plain.txt plain.txt --model tatoeba-en-de
!calibrate plain.txt long.txt --model tatoeba-en-de
!transalte
"""
# Those that every small model gets, for its own texts.
EACH = (
    *("beam-1", "beam-4", "beam-8", "min-length", "max-length", "no-repeat-ngram-2", "stop-exhaustive", "stop-shrink"),
    *("groups", "prefix", "constraints", "constraints-prefix", "glossary", "protect", "memory", "max-source"),
    *("sample", "mbr-chrf", "json", "alignments-protect", "alignments-cut", "repetition-penalty", "counts"),
)
TORCH_EACH = ("beam-4", "constraints", "glossary", "sample", "alignments-protect", "json")
ENSEMBLES = {
    "plain+rotary": ("plain", "rotary"),
    "plain+ssru+decoder-only": ("plain", "ssru", "decoder-only"),
    "shipped-twice": (SHIPPED, SHIPPED),
}
FORMATS = {
    "plain": "",
    "float32": "--precision float32 --beam 1",
    "memory": "--memory memory.po",
    "glossary": "--glossary terms.tsv --protect-pattern '[Cc]ats?'",
    "memory-glossary": "--memory memory.po --glossary terms.tsv",
    "confidence": "--min-confidence 0.5",
    "overwrite": "--overwrite --no-repeat-ngram 3",
}
PROGRAMS = {
    "translate": "print(*t.translate(LINES), sep='\\n')",
    "raw": "print(*t.translate(LINES, raw=True), sep='\\n')",
    "generator": "print(*t.translate(line for line in LINES), sep='\\n')",
    "nbest": "for best in t.nbest(LINES, 3): print(*best, sep='\\n')",
    "alignments": "for best in t.nbest(LINES, 2, alignments=True): print(*best, sep='\\n')",
    "sampling": "for best in t.nbest(LINES, 2, vtrans.Sampling(seed=5, top_k=8)): print(*best, sep='\\n')",
    "mbr": "for best in t.nbest(LINES, 2, mbr=vtrans.Mbr('bleu')): print(*best, sep='\\n')",
    "mbr-samples": "for b in t.nbest(LINES, 1, vtrans.Sampling(), mbr=vtrans.Mbr('chrf', samples=6)): print(*b)",
    "prefixes": "for best in t.nbest(LINES, 2, prefixes=['Ein', 'Wo', '', 'Der']): print(*best, sep='\\n')",
    "constraints": "W = [{'constraints': ['Park']}, {'avoid': ['Auto']}, {}, {'constraints': [['groß', 'große']]}]\n"
    "for best in t.nbest(LINES, 2, constraints=W): print(*best, sep='\\n')",
    "logprob": "for each in t.logprob(LINES, ['Ein Hund läuft.', 'Wo?', '', 'x']): print(each)",
    "logprob-ids": "best = [b[0] for b in t.nbest(LINES)]\n"
    "for each in t.logprob(LINES, [b.tokens for b in best]): print(each)",
    "counts": "list(t.translate(LINES))\nc = t.counts\n"
    "print(c.lines, c.blank, c.known, c.cut, c.empty, c.unfinished, c.looping, c.retried, c.unmet, c.tgt_tokens)",
    "settings": "print(t.search)",
    "too-many": "t.nbest(LINES, 99)",
    "a-string": "t.translate('A dog runs.')",
    "unknown-language": "t.translate(LINES, to='fr')",
    "short-prefixes": "print(list(t.translate(LINES, prefixes=['Ein'])))",
    "unequal-targets": "print(list(t.logprob(LINES, ['a'])))",
    "wrong-setting": "vtrans.load(MODEL, beam=0)",
    "unknown-setting": "vtrans.load(MODEL, baem=3)",
    "wrong-engine": "vtrans.load(MODEL, engine='fast')",
    "no-model": "vtrans.load('none.safetensors')",
}
PROGRAM = """import sys, vtrans
LINES = ["A dog runs in the park.", "WHERE IS THE RED CAR?", "", "The big dog \U0001f600 sees {{name}}."]
MODEL = "{model}"
try:
    t = vtrans.load(MODEL, **{settings})
    {program}
except vtrans.VtransError as error:
    print(type(error).__name__, error)
"""
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
BIG = {"q": "A dog runs in the park. Where is the red car?", "source": "en", "target": "de"}
PAGE = DOCUMENTS["a.html"].decode()
MANY = ["A dog runs.", "", "THE CAR IS RED.", "Time flies.\n\nWe know it. \U0001f600", "See {name} at https://a.org/b."]
# What /translate is asked for, by name: the fields that are added to BIG.
ASKED: dict[str, dict[str, object]] = {
    "one": {},
    "many": {"q": MANY},
    "auto": {"q": [*MANY, "Der Hund läuft im Park und sieht die Katze."], "source": "auto"},
    "alternatives": {"alternatives": 3},
    "alternatives-many": {"q": MANY, "alternatives": 2, "alignments": True},
    "alignments": {"alignments": True},
    "alignments-lines": {"q": "A dog runs.\n  THE CAR IS RED. Time flies!\n", "alignments": True},
    "html": {"q": PAGE, "format": "html"},
    "html-alternatives": {"q": "<p>The <b>big</b> dog &amp; the cat.</p>", "format": "html", "alternatives": 2},
    "html-broken": {"q": "<p>The <b>big dog</p> <3 </i> &nope; <", "format": "html"},
    "html-alignments": {"q": "<b>The</b> dog", "format": "html", "alignments": True},
    "glossary": {"glossary": {"dog": "Köter|Köters", "red car": "roter Wagen"}},
    "glossary-pairs": {"glossary": [["park", "Anlage"]], "alignments": True},
    "beam": {"beam": 8, "alternatives": 7},
    "rules": {"no_repeat_ngram": 2, "min_length": 8, "suppress": ["."], "alpha": 1.5, "length_penalty": "length"},
    "stop": {"stop": "exhaustive", "beam": 2},
    "groups": {"beam": 4, "beam_groups": 4, "diversity": 1, "alternatives": 3},
    "short": {"max_length": 3},
    "as-text": {"beam": "2", "alternatives": "1"},
    "region": {"source": "en-US"},
    "capital-code": {"source": "EN", "target": "DE"},
    "blank": {"q": "  \n "},
    "wrong-q": {"q": 3},
    "wrong-list": {"q": ["a", None]},
    "no-texts": {"q": []},
    "empty": {"q": ""},
    "wrong-source": {"source": "xx"},
    "wrong-target": {"target": "fr"},
    "no-target": {"target": None},
    "wrong-format": {"format": "rtf"},
    "wrong-alternatives": {"alternatives": -1},
    "too-many-alternatives": {"alternatives": 100},
    "wrong-beam": {"beam": 99},
    "beam-of-text": {"beam": "wide"},
    "groups-contradict": {"beam": 4, "beam_groups": 3},
    "shrink-glossary": {"stop": "shrink", "glossary": {"dog": "Köter"}},
    "wrong-glossary": {"glossary": {"dog": 3}},
    "glossary-twice": {"glossary": [["dog", "a"], ["dog", "b"]]},
    "unknown-piece": {"suppress": ["no such piece"]},
    "nul": {"q": "a\0b"},
    "surrogate": {"q": "a\ud800b"},
    "too-long": {"q": "a " * 30000},
}
