# `make train` and `make test` do everything from a fresh clone; a second call installs nothing.
VENV := .venv
PYTHON ?= python3
RUN := $(VENV)/bin/
INSTALLED := $(VENV)/.installed
JOBS ?= 2

.PHONY: setup train test test-slow lint format learn learn-async contests must-fail mutants chaos soak audit bench bench-ray docs clean

setup: $(INSTALLED)

# torch comes first and pinned: whatever else needs torch is then content with the one that is there.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(RUN)python || $(PYTHON) -m venv $(VENV)
	$(RUN)pip install --quiet --constraint constraints.txt torch
	$(RUN)pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

train: setup
	$(RUN)rl-training train --config ppo/cartpole

test: setup
	OMP_NUM_THREADS=1 $(RUN)python -m pytest -n $(JOBS) --dist loadgroup

# Minutes: what is learned for longer than a suite may take.
test-slow: setup
	OMP_NUM_THREADS=1 $(RUN)python -m pytest -m slow -n $(JOBS)

lint: setup
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)mypy

format: setup
	$(RUN)ruff check --fix .
	$(RUN)ruff format .

# Hours: every preset over five seeds. One algorithm: make learn ONLY=ppo
learn: setup
	$(RUN)python -m benchmarks.learn $(ONLY) --jobs $(JOBS)

# An hour: IMPALA and APPO with two asynchronous workers on Ray.
learn-async: setup
	$(RUN)python -m benchmarks.learn_async $(ONLY)

# Hours: two learners at equal steps, some of them Stable-Baselines3's. One contest: make contests ONLY=sac_hopper
contests: setup .venv-bench/.installed
	$(RUN)python -m benchmarks.contests $(ONLY) --jobs $(JOBS)

# Experiments that must fail.
must-fail: setup
	$(RUN)python -m benchmarks.must_fail

# Minutes: bugs that are planted one by one, each of which a test must notice.
mutants: setup
	$(RUN)python -m benchmarks.mutants

# Minutes: runs that are killed again and again, files that are damaged and forged.
chaos: setup
	$(RUN)python -m benchmarks.chaos

# Known vulnerabilities of the oldest dependencies; without a network it says so.
audit: setup
	-$(RUN)pip install --quiet --constraint constraints.txt pip-audit
	$(RUN)python -m benchmarks.audit

# An hour: long runs, whose memory, descriptors and speed must stay level.
soak: setup
	$(RUN)python -m benchmarks.soak

# All are measured, also after one that misses its bar.
PEERS := stable-baselines3==2.9.2 sb3-contrib==2.9.2 sbx-rl==0.28.0 mctx "jax[cpu]" rejax==0.1.3 gymnax==0.0.9 sheeprl "mujoco<4" ale-py opencv-python-headless
FAMILIES ?= ppo ppo_rejax ppo_pong ppo_pong_bfloat16 ppo_breakout_bfloat16 a2c trpo recurrent_ppo ppo_halfcheetah a2c_halfcheetah trpo_halfcheetah a2c_pendulum trpo_pendulum recurrent_ppo_pendulum sac sac_sbx td3 td3_sbx sac_bfloat16 sac_sbx_bfloat16 td3_bfloat16 td3_sbx_bfloat16 dqn
OTHERS ?= search dreamer replay two_cores
bench: .venv-bench/.installed
	missed=0; \
	for family in $(FAMILIES); do .venv-bench/bin/python -m benchmarks.compare_sb3 --family $$family || missed=1; done; \
	for other in $(OTHERS); do .venv-bench/bin/python -m benchmarks.$$other || missed=1; done; \
	$(MAKE) bench-ray || missed=1; exit $$missed

# Two asynchronous workers against one process, and what more workers should bring.
bench-ray: setup
	$(RUN)python -m benchmarks.ray
	$(RUN)python -m benchmarks.cluster_model

.venv-bench/.installed: pyproject.toml constraints.txt
	test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --constraint constraints.txt torch
	.venv-bench/bin/pip install --quiet --constraint constraints.txt $(PEERS) --editable .
	touch $@

docs: setup
	$(RUN)pip install --quiet --constraint constraints.txt --editable ".[docs]"
	$(RUN)python docs/build.py
	$(RUN)zensical build

clean:
	rm -rf $(VENV) .venv-bench build dist site
