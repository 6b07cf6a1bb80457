"""Bugs in the policy-gradient family."""

from __future__ import annotations

from benchmarks.mutants.mutant import Mutant

CONFORMANCE = "test_conformance.py"
STATISTICS = f"{CONFORMANCE}::test_observation_statistics_move_after_the_updates"
RETURNS = ("test_ops_returns.py",)
LOSSES = ("test_ops_losses.py",)
PPO, A2C, TRPO = ("test_ppo_update.py",), ("test_a2c_update.py",), ("test_trpo_update.py",)
IMPALA, APPO, PPG = ("test_impala_update.py",), ("test_appo_update.py",), ("test_ppg_update.py",)
GAIL, RECURRENT, MODELS = ("test_gail_update.py",), ("test_recurrent_ppo_update.py",), ("test_models.py",)
COLLECTOR = ("test_collector.py",)

MUTANTS = [
    Mutant(
        "the schedule of gae_lambda is ignored, its fixed value is read",
        "algorithms/params.py",
        "        vars(self).update(values)\n",
        '        vars(self).update({name: value for name, value in values.items() if name != "gae_lambda"})\n',
        (f"{CONFORMANCE}::test_a_control_changes_the_training_itself[ppo-gae_lambda]",),
    ),
    Mutant(
        "PPO moves the observation statistics before its updates",
        "runtime/ppo_trainer.py",
        "        yield from self.epochs(batch)\n        self.update_statistics(rollout)\n",
        "        self.update_statistics(rollout)\n        yield from self.epochs(batch)\n",
        (f"{STATISTICS}[ppo]",),
    ),
    Mutant(
        "IMPALA moves the observation statistics before its updates",
        "runtime/impala_trainer.py",
        "        for _ in range(self.params.update_epochs):\n",
        "        self.update_statistics(rollout)\n        for _ in range(self.params.update_epochs):\n",
        (f"{STATISTICS}[impala]",),
    ),
    Mutant(
        "TRPO does not normalise its advantages",
        "algorithms/trpo.py",
        'advantages = self.usable(batch["advantages"])',
        'advantages = batch["advantages"]',
        TRPO,
    ),
    Mutant(
        "APPO ignores normalize_advantages",
        "algorithms/impala.py",
        '{**batch, "advantages": self.usable(batch["advantages"])}',
        "batch",
        APPO,
    ),
    Mutant(
        "APPO's KL is reversed",
        "algorithms/appo.py",
        'self.policy.head.kl(batch["reference"], evaluated.dist)',
        'self.policy.head.kl(evaluated.dist, batch["reference"])',
        APPO,
    ),
    Mutant(
        "IMPALA ignores normalize_reward",
        "runtime/impala_trainer.py",
        "rewards=self.summed_rewards(rollout))",
        "rewards=self.rewards(rollout))",
        IMPALA,
    ),
    Mutant(
        "IMPALA's bootstrap values are those before the first update",
        "runtime/impala_trainer.py",
        "        for _ in range(self.params.update_epochs):\n            for part in self.parts(rollout):\n"
        "                yield self.update(self.batch(part))\n",
        "        epochs = range(self.params.update_epochs)\n"
        "        for batch in [self.batch(part) for _ in epochs for part in self.parts(rollout)]:\n"
        "            yield self.update(batch)\n",
        IMPALA,
    ),
    Mutant(
        "PPG's teacher is computed again in every epoch",
        "runtime/ppg_trainer.py",
        "        for _ in range(self.params.aux_epochs):\n",
        "        for _ in range(self.params.aux_epochs):\n"
        '            rows["teacher"] = self.algorithm.teacher(rows["obs"])\n',
        PPG,
    ),
    Mutant(
        "GAIL's discriminator sees raw samples in place of executed actions",
        "runtime/gail_trainer.py",
        '"actions": self.executed(rollout).flatten(0, 1)}',
        '"actions": rollout.actions.flatten(0, 1)}',
        GAIL,
    ),
    Mutant(
        "GAIL pays for raw samples in place of executed actions",
        "runtime/gail_trainer.py",
        "self.algorithm.rewards(flatten_time(rollout.obs), self.executed(rollout).flatten(0, 1))",
        "self.algorithm.rewards(flatten_time(rollout.obs), rollout.actions.flatten(0, 1))",
        GAIL,
    ),
    Mutant(
        "GAIL's discriminator does not take the scale of its inputs from the expert",
        "runtime/gail_trainer.py",
        "        self.algorithm.discriminator.update_statistics(self.expert.obs, self.expert.actions)\n",
        "",
        GAIL,
    ),
    Mutant(
        "GAIL's discriminator takes its inputs unscaled",
        "models/discriminator.py",
        'pair = self.normalizer({"obs": self.view.seen(obs), "action": actions})',
        'pair = {"obs": self.view.seen(obs), "action": actions}',
        GAIL,
    ),
    Mutant(
        "GAIL's discriminator is shown reset rows",
        "runtime/gail_trainer.py",
        "kept = rollout.valid.flatten().nonzero()[:, 0].cpu().numpy()",
        "kept = rollout.valid.numel()",
        GAIL,
    ),
    Mutant(
        "GAE bootstraps past a termination",
        "ops/returns.py",
        "bootstraps = np.where(terminated.cpu().numpy(), np.float32(0.0), _array(next_values))",
        "bootstraps = _array(next_values)",
        RETURNS,
    ),
    Mutant(
        "GAE's trace runs through a time limit",
        "ops/returns.py",
        "_scan(~done.cpu().numpy() *",
        "_scan(~terminated.cpu().numpy() *",
        RETURNS,
    ),
    Mutant(
        "GAE forgets lambda",
        "ops/returns.py",
        "totals.dtype.type(gamma * gae_lambda), totals)",
        "totals.dtype.type(gamma), totals)",
        RETURNS,
    ),
    Mutant(
        "V-trace does not clip its temporal differences",
        "ops/returns.py",
        "deltas = rhos.clamp(max=rho_bar) *",
        "deltas = rhos *",
        RETURNS,
    ),
    Mutant(
        "V-trace does not clip its traces",
        "ops/returns.py",
        "* rhos.clamp(max=c_bar)",
        "* rhos",
        RETURNS,
    ),
    Mutant(
        "the clipped surrogate is optimistic",
        "ops/losses.py",
        "-torch.min(ratio * advantages, clipped * advantages).mean()",
        "-torch.max(ratio * advantages, clipped * advantages).mean()",
        LOSSES,
    ),
    Mutant(
        "the clipped value loss takes the better error",
        "ops/losses.py",
        "errors = torch.max(errors, (clipped - targets).square())",
        "errors = torch.min(errors, (clipped - targets).square())",
        LOSSES,
    ),
    Mutant(
        "advantages are centred and not scaled",
        "ops/losses.py",
        "centered / (deviation + 1e-8))",
        "centered)",
        LOSSES,
    ),
    Mutant(
        "the approximate KL is the reverse one",
        "ops/losses.py",
        "(log_ratio.expm1() - log_ratio).mean()",
        "((-log_ratio).expm1() + log_ratio).mean()",
        LOSSES,
    ),
    Mutant(
        "PPO's entropy bonus is a penalty",
        "algorithms/ppo.py",
        "total = policy_loss + vf_coef * value_loss - ent_coef * entropy",
        "total = policy_loss + vf_coef * value_loss + ent_coef * entropy",
        PPO,
    ),
    Mutant(
        "PPO does not stop at target_kl",
        "runtime/ppo_trainer.py",
        'result.metrics["approx_kl"] > self.params.target_kl',
        'result.metrics["approx_kl"] > 1e9',
        PPO,
    ),
    Mutant(
        "minibatches are not shuffled",
        "runtime/actor_critic_learner.py",
        "order = torch.from_numpy(self.rng.generator.permutation(rows))",
        "order = torch.arange(rows)",
        PPO,
    ),
    Mutant(
        "A2C learns returns in place of advantages",
        "algorithms/a2c.py",
        'policy_loss = -(batch["advantages"] * evaluated.logprobs).mean()',
        'policy_loss = -(batch["returns"] * evaluated.logprobs).mean()',
        A2C,
    ),
    Mutant(
        "TRPO's step ignores the bound on the KL",
        "ops/trust_region.py",
        "if reached > objective and kl <= max_kl:",
        "if reached > objective:",
        ("test_ops_trust_region.py",),
    ),
    Mutant(
        "TRPO's step is half as long",
        "ops/trust_region.py",
        "return (2.0 * max_kl / curvature).sqrt() * direction",
        "return (0.5 * max_kl / curvature).sqrt() * direction",
        ("test_ops_trust_region.py",),
    ),
    Mutant(
        "TRPO does not damp the Fisher matrix",
        "algorithms/trpo.py",
        "return mean_(product(vector) + params.cg_damping * vector)",
        "return mean_(product(vector))",
        (f"{CONFORMANCE}::test_a_control_changes_the_training_itself[trpo-cg_damping]",),
    ),
    Mutant(
        "IMPALA's traces run through rows that never happened",
        "algorithms/impala.py",
        'if "valid" in batch and not batch["valid"].all():',
        "if False:",
        IMPALA,
    ),
    Mutant(
        "APPO's advantages have a ratio already",
        "algorithms/appo.py",
        "    def pg_rho_bar(self) -> float | None:\n        return None",
        "    def pg_rho_bar(self) -> float | None:\n        return 1.0",
        APPO,
    ),
    Mutant(
        "APPO's target network is copied after every update",
        "algorithms/appo.py",
        "self.target.copy_every(self.params.target_update_interval or 1, self.policy)",
        "self.target.copy_every(1, self.policy)",
        APPO,
    ),
    Mutant(
        "PPG's value error reaches the trunk in the policy phase",
        "models/mlp_ppg.py",
        "values = self._value(features.detach())",
        "values = self._value(features)",
        PPG,
    ),
    Mutant(
        "PPG does not hold the policy to its teacher",
        "algorithms/ppg.py",
        "aux_value_loss + beta_clone * clone_kl + value_loss, aux_value_loss",
        "aux_value_loss + value_loss, aux_value_loss",
        PPG,
    ),
    Mutant(
        "GAIL's labels are swapped",
        "algorithms/gail.py",
        "labels = torch.cat([torch.ones_like(expert_logits), torch.zeros_like(policy_logits)])",
        "labels = torch.cat([torch.zeros_like(expert_logits), torch.ones_like(policy_logits)])",
        GAIL,
    ),
    Mutant(
        "the recurrent state runs on through an episode's start",
        "runtime/collector.py",
        "    if not (state.shape[1] and starts.any()):\n        return state\n",
        "    return state\n",
        COLLECTOR,
    ),
    Mutant(
        "a sequence's state runs on through an episode's start",
        "models/recurrent.py",
        "        first = starts.clone()\n",
        "        first = torch.zeros_like(starts)\n",
        RECURRENT,
    ),
    Mutant(
        "Recurrent PPO's losses see reset rows",
        "algorithms/recurrent_ppo.py",
        'kept = by_time["valid"].flatten().nonzero()[:, 0]',
        'kept = (by_time["valid"] | ~by_time["valid"]).flatten().nonzero()[:, 0]',
        RECURRENT,
    ),
    Mutant(
        "the value after a truncation is that of the reset observation",
        "data/rollout.py",
        "        following[final_rows[:, 0], final_rows[:, 1]] = final_values\n",
        "        pass\n",
        COLLECTOR,
    ),
    Mutant(
        "a bounded action is not scaled to its bounds",
        "models/box_scale.py",
        "            actions = self.first + (actions + 1.0) * self.half\n",
        "            pass\n",
        MODELS,
    ),
    Mutant(
        "the reward's trace runs on when new episodes begin everywhere",
        "runtime/actor_critic_learner.py",
        "        self.reward_normalizer.traces.clear()\n",
        "        pass\n",
        (f"{CONFORMANCE}::test_no_reward_of_an_old_episode_is_counted_after_new_ones_began_everywhere[ppo]",),
    ),
    Mutant(
        "GAIL's reset rows pay",
        "runtime/gail_trainer.py",
        "return rows.reshape(rollout.rewards.shape) * rollout.valid",
        "return rows.reshape(rollout.rewards.shape)",
        GAIL,
    ),
    Mutant(
        "the reward's trace runs on through an episode's end",
        "models/normalization.py",
        "            trace[ended] = 0.0\n",
        "",
        MODELS,
    ),
]
