"""Bugs at the edges: images, bounds, budgets, threads and demonstrations."""

from __future__ import annotations

from benchmarks.mutants.mutant import Mutant

IMAGES = ("test_images.py",)
MODELS = ("test_models.py",)
API = ("test_public_api.py",)
DEMONSTRATIONS = ("test_gail_trainer_smoke.py::test_demonstrations_that_do_not_fit_are_refused_by_name",)
RESETS = ("test_conformance.py::test_a_rollout_of_resets_alone_teaches_nothing[ppo]",)

MUTANTS = [
    Mutant(
        "pixels are divided by 255 whatever their bounds",
        "models/images.py",
        "return pixels.div_(self.white - self.black)",
        "return pixels.div_(255.0)",
        IMAGES,
    ),
    Mutant(
        "scaling an image of floats changes the observation",
        "models/images.py",
        "if self.black or obs.dtype == torch.float32:",
        "if self.black:",
        IMAGES,
    ),
    Mutant(
        "the shorter end has the channels, whatever the sides",
        "envs/types.py",
        "    if (first == middle) != (middle == last):\n        return first == middle\n",
        "",
        IMAGES,
    ),
    Mutant(
        "image_layout is ignored",
        "models/images.py",
        "last = channels_last(shape, layout)",
        "last = channels_last(shape)",
        IMAGES,
    ),
    Mutant(
        "options of an MLP are accepted where there are only images",
        "runtime/session.py",
        "    refuse_idle(params, learner_class.idle(spaces))\n",
        "",
        IMAGES,
    ),
    Mutant(
        "integers are not normalised",
        "models/normalization.py",
        "elif isinstance(space, spaces.Box) and not (is_image(space) or is_grid(space)):",
        "elif isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):",
        IMAGES,
    ),
    Mutant(
        "images take every core, whatever OMP_NUM_THREADS says",
        "runtime/threads.py",
        "return min(cores, int(allowed)) if allowed.isdecimal() and int(allowed) else cores",
        "return cores",
        IMAGES,
    ),
    Mutant(
        "a partly bounded Box is not scaled",
        "models/box_scale.py",
        "self.is_scaled, self.is_bounded = bool(bounded.any()), bool(bounded.all())",
        "self.is_scaled, self.is_bounded = bool(bounded.all()), bool(bounded.all())",
        MODELS,
    ),
    Mutant(
        "the greatest float is taken for a bound",
        "models/box_scale.py",
        "AS_GOOD_AS_INFINITE = 1e30",
        'AS_GOOD_AS_INFINITE = float("inf")',
        MODELS,
    ),
    Mutant(
        "training again doubles the budget",
        "api/agent.py",
        "steps = self._budget if total_timesteps is None else total_timesteps",
        "steps = session.config.total_timesteps if total_timesteps is None else total_timesteps",
        API,
    ),
    Mutant(
        "training for no step trains the default",
        "api/agent.py",
        "steps = self._budget if total_timesteps is None else total_timesteps",
        "steps = total_timesteps or self._budget",
        API,
    ),
    Mutant(
        "a rollout of resets alone is learned from",
        "runtime/actor_critic_learner.py",
        "        if rollout.num_steps:\n",
        "        if True:\n",
        RESETS,
    ),
    Mutant(
        "demonstrations of another environment are taken",
        "data/fitting_demonstrations.py",
        "        or _wrong_environment(demos.env_id, env_id)\n",
        "",
        DEMONSTRATIONS,
    ),
    Mutant(
        "demonstrated actions may lie anywhere",
        "data/fitting_demonstrations.py",
        "        or _wrong_actions(demos.actions.cpu().numpy(), action)\n",
        "",
        DEMONSTRATIONS,
    ),
]
