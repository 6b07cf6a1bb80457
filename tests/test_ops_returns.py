"""Returns and advantages: by hand, against the papers' definitions, by identity, at the edges."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from rl_training.ops.returns import gae, lambda_returns, n_step_returns, reverse_scan, vtrace

T, B = 12, 5


def column(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=torch.float32).unsqueeze(1)


def flags(*entries: int) -> Tensor:
    return torch.tensor(entries, dtype=torch.bool).unsqueeze(1)


def random_rollout(seed: int) -> dict[str, Any]:
    """Float64, with terminations and truncations, and a final state whose value is not that of the next row."""
    torch.manual_seed(seed)
    terminated = torch.rand(T, B) < 0.15
    truncated = (torch.rand(T, B) < 0.15) & ~terminated
    done = terminated | truncated
    values, final_values = torch.randn(2, T + 1, B, dtype=torch.float64)
    return {
        "rewards": torch.randn(T, B, dtype=torch.float64),
        "values": values[:-1],
        "next_values": torch.where(done, final_values[1:], values[1:]),
        "terminated": terminated,
        "done": done,
    }


def without(rollout: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in rollout.items() if name not in names}


def test_reverse_scan_by_hand() -> None:
    # y_2 = 3;  y_1 = 2 + 0.5 * 3 = 3.5;  y_0 = 1 + 2 * 3.5 = 8; the last decay meets y_3 = 0
    torch.testing.assert_close(reverse_scan(column(2, 0.5, 9), column(1, 2, 3)), column(8, 3.5, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_reverse_scan_keeps_dtype_and_arguments(dtype: torch.dtype) -> None:
    decay, inputs = torch.rand(T, B, dtype=dtype), torch.rand(T, B, dtype=dtype)
    before = decay.clone(), inputs.clone()
    assert reverse_scan(decay, inputs).dtype == dtype
    assert torch.equal(decay, before[0])
    assert torch.equal(inputs, before[1])


def test_reverse_scan_accepts_strided_broadcast_and_differentiable_inputs() -> None:
    inputs = torch.rand(B, T, requires_grad=True)
    decay = torch.rand(T, 1)
    scanned = reverse_scan(decay, inputs.T)
    torch.testing.assert_close(scanned, reverse_scan(decay.repeat(1, B), inputs.T.detach().clone()))
    assert not scanned.requires_grad


@pytest.mark.parametrize("shape", [(T,), (T, B, 3)])
def test_reverse_scan_works_on_any_shape_with_time_first(shape: tuple[int, ...]) -> None:
    decay, inputs = torch.rand(shape), torch.rand(shape)
    scanned = reverse_scan(decay.reshape(T, -1), inputs.reshape(T, -1)).reshape(shape)
    torch.testing.assert_close(reverse_scan(decay, inputs), scanned)


def test_reverse_scan_of_nothing_is_nothing() -> None:
    assert reverse_scan(torch.rand(0, B), torch.rand(0, B)).shape == (0, B)


def test_gae_by_hand() -> None:
    # delta = [1 + 0.5*2 - 1, 1 + 0.5*3 - 2] = [1.0, 0.5];  A_0 = 1.0 + 0.25 * 0.5
    none = flags(0, 0)
    advantages = gae(column(1, 1), column(1, 2), column(2, 3), terminated=none, done=none, gamma=0.5, gae_lambda=0.5)
    torch.testing.assert_close(advantages, column(1.125, 0.5))


def test_gae_tells_a_time_limit_from_a_death() -> None:
    """Both environments end at step 0, env 0 by dying and env 1 by a time limit, in a state worth 4."""
    # Step 1 (a new episode):  delta_1 = 1 + 0.5*6 - 2 = 2 in both.
    # Died:       A_0 = 1 + 0     - 1 = 0
    # Time limit: A_0 = 1 + 0.5*4 - 1 = 2
    # The bugs:   truncation as termination gives 0 in env 1; bootstrapping from the reset state, worth 2, gives 1;
    #             a trace across the end adds 0.25 * 2 = 0.5 to either.
    advantages = gae(
        torch.tensor([[1.0, 1.0], [1.0, 1.0]]),
        torch.tensor([[1.0, 1.0], [2.0, 2.0]]),
        torch.tensor([[4.0, 4.0], [6.0, 6.0]]),
        terminated=torch.tensor([[True, False], [False, False]]),
        done=torch.tensor([[True, True], [False, False]]),
        gamma=0.5,
        gae_lambda=0.5,
    )
    died, timed_out = advantages[0].tolist()
    assert died == pytest.approx(0.0, abs=1e-6)
    assert timed_out != pytest.approx(0.0, abs=1e-6), "truncation was treated as termination"
    assert timed_out != pytest.approx(1.0, abs=1e-6), "bootstrapped from the reset observation"
    assert timed_out == pytest.approx(2.0, abs=1e-6)
    torch.testing.assert_close(advantages[1], torch.tensor([2.0, 2.0]))


def test_gae_ignores_the_value_of_a_terminal_state_even_if_it_is_nan() -> None:
    end = flags(1)
    advantages = gae(column(1), column(3), column(float("nan")), terminated=end, done=end, gamma=0.9, gae_lambda=0.9)
    torch.testing.assert_close(advantages, column(-2))


@pytest.mark.parametrize("seed", range(3))
def test_gae_is_the_papers_sum_of_discounted_deltas(seed: int) -> None:
    gamma, lam = 0.9, 0.8
    rollout = random_rollout(seed)
    r, v, nv, terminated, done = rollout.values()
    expected = torch.zeros_like(r)
    for b in range(B):
        for t in range(T):
            for k in range(t, T):
                delta = r[k, b] + gamma * nv[k, b] * (not terminated[k, b]) - v[k, b]
                expected[t, b] += (gamma * lam) ** (k - t) * delta
                if done[k, b]:
                    break
    torch.testing.assert_close(gae(**rollout, gamma=gamma, gae_lambda=lam), expected)


def test_gae_with_lambda_0_is_the_td_error() -> None:
    rollout = random_rollout(0)
    one_step = n_step_returns(**without(rollout, "values"), gamma=0.9, n=1)
    torch.testing.assert_close(gae(**rollout, gamma=0.9, gae_lambda=0.0), one_step - rollout["values"])


def test_gae_when_every_step_ends_an_episode_has_no_trace() -> None:
    everywhere = torch.ones(T, B, dtype=torch.bool)
    rollout = random_rollout(0) | {"terminated": everywhere, "done": everywhere}
    torch.testing.assert_close(gae(**rollout, gamma=0.9, gae_lambda=0.9), rollout["rewards"] - rollout["values"])


def test_lambda_returns_by_hand() -> None:
    # R_1 = 2 + 0.5 * 8 = 6;  R_0 = 1 + 0.5 * (0.75 * 4 + 0.25 * 6) = 1 + 0.5 * 4.5 = 3.25
    returns = lambda_returns(column(1, 2), column(4, 8), discounts=column(0.5, 0.5), gae_lambda=0.25)
    torch.testing.assert_close(returns, column(3.25, 6))


def test_lambda_returns_stop_where_the_episode_does_not_continue() -> None:
    # discount_1 = 0: R_1 = 2, whatever follows;  R_0 = 1 + 0.5 * (0.5 * 4 + 0.5 * 2) = 2.5;  R_2 = 3 + 0.5 * 6 = 6
    returns = lambda_returns(column(1, 2, 3), column(4, 100, 6), discounts=column(0.5, 0, 0.5), gae_lambda=0.5)
    torch.testing.assert_close(returns, column(2.5, 2, 6))


def test_lambda_returns_are_the_literal_recursion() -> None:
    r, _, nv, _, done = random_rollout(1).values()
    discounts, lam = 0.9 * (~done).double(), 0.7
    expected = torch.zeros_like(r)
    following = nv[-1]
    for t in reversed(range(T)):
        following = r[t] + discounts[t] * ((1 - lam) * nv[t] + lam * following)
        expected[t] = following
    torch.testing.assert_close(lambda_returns(r, nv, discounts=discounts, gae_lambda=lam), expected)


def test_lambda_returns_with_lambda_1_are_the_discounted_sum_and_one_bootstrap() -> None:
    r, _, nv, _, _ = random_rollout(2).values()
    gamma = 0.9
    expected = torch.stack(
        [sum(gamma ** (k - t) * r[k] for k in range(t, T)) + gamma ** (T - t) * nv[-1] for t in range(T)]
    )
    returns = lambda_returns(r, nv, discounts=torch.full_like(r, gamma), gae_lambda=1.0)
    torch.testing.assert_close(returns, expected)


def test_lambda_returns_are_gae_plus_values_inside_one_episode() -> None:
    rollout = random_rollout(3)
    nowhere = torch.zeros(T, B, dtype=torch.bool)
    values = torch.randn(T + 1, B, dtype=torch.float64)
    rollout |= {"terminated": nowhere, "done": nowhere, "values": values[:-1], "next_values": values[1:]}
    discounts = torch.full((T, B), 0.9, dtype=torch.float64)
    returns = lambda_returns(rollout["rewards"], values[1:], discounts=discounts, gae_lambda=0.8)
    torch.testing.assert_close(returns, gae(**rollout, gamma=0.9, gae_lambda=0.8) + values[:-1])


def test_two_step_returns_by_hand_over_a_death_and_a_time_limit() -> None:
    # gamma 0.5, rewards 1 2 4 8, next values 10 20 30 40, an end at step 1; steps 2 and 3 are a new episode:
    #   G_3 = 8 + 0.5*40 = 28 (end of the rollout);  G_2 = 4 + 0.5*8 + 0.25*40 = 18
    # Died:       G_1 = 2;                 G_0 = 1 + 0.5*2 = 2
    # Time limit: G_1 = 2 + 0.5*20 = 12;   G_0 = 1 + 0.5*2 + 0.25*20 = 7
    rewards, next_values, end = column(1, 2, 4, 8), column(10, 20, 30, 40), flags(0, 1, 0, 0)
    died = n_step_returns(rewards, next_values, terminated=end, done=end, gamma=0.5, n=2)
    timed_out = n_step_returns(rewards, next_values, terminated=flags(0, 0, 0, 0), done=end, gamma=0.5, n=2)
    torch.testing.assert_close(died, column(2, 2, 18, 28))
    torch.testing.assert_close(timed_out, column(7, 12, 18, 28))


@pytest.mark.parametrize("n", [1, 3, T, 2 * T])
def test_n_step_returns_are_the_literal_sum(n: int) -> None:
    gamma = 0.9
    rollout = random_rollout(4)
    r, _, nv, terminated, done = rollout.values()
    expected = torch.zeros_like(r)
    for b in range(B):
        for t in range(T):
            for k in range(t, min(t + n, T)):
                expected[t, b] += gamma ** (k - t) * r[k, b]
                if done[k, b]:
                    break
            expected[t, b] += gamma ** (k - t + 1) * nv[k, b] * (not terminated[k, b])
    torch.testing.assert_close(n_step_returns(**without(rollout, "values"), gamma=gamma, n=n), expected)


def test_as_many_steps_as_the_rollout_has_equal_lambda_1() -> None:
    rollout = random_rollout(5)
    returns = n_step_returns(**without(rollout, "values"), gamma=0.9, n=T)
    torch.testing.assert_close(returns, gae(**rollout, gamma=0.9, gae_lambda=1.0) + rollout["values"])


def test_vtrace_by_hand() -> None:
    # rho = [2, 0.5], gamma 0.5, V = [1, 2], next V = [2, 4], r = [1, 1], clips 1:
    #   delta_1 = 0.5 * (1 + 0.5*4 - 2) = 0.5;  delta_0 = 1 * (1 + 0.5*2 - 1) = 1
    #   vs_1 = 2 + 0.5 = 2.5;                   vs_0 = 1 + 1 + 0.5 * 1 * 0.5 = 2.25
    #   A_1 = 0.5 * (1 + 0.5*4 - 2) = 0.5;      A_0 = 1 * (1 + 0.5*2.5 - 1) = 1.25
    none = flags(0, 0)
    result = vtrace(
        column(2, 0.5).log(), column(1, 1), column(1, 2), column(2, 4), terminated=none, done=none, gamma=0.5
    )
    torch.testing.assert_close(result.targets, column(2.25, 2.5))
    torch.testing.assert_close(result.advantages, column(1.25, 0.5))
    torch.testing.assert_close(result.rhos, column(2, 0.5))


def test_vtrace_tells_a_time_limit_from_a_death() -> None:
    # One step on policy, r = 1, V = 3, final state worth 4, gamma 0.5. Died: vs = 1; time limit: vs = 1 + 0.5*4 = 3.
    end = flags(1)
    died = vtrace(column(0), column(1), column(3), column(4), terminated=end, done=end, gamma=0.5)
    timed_out = vtrace(column(0), column(1), column(3), column(4), terminated=flags(0), done=end, gamma=0.5)
    assert (died.targets.item(), died.advantages.item()) == (1.0, -2.0)
    assert (timed_out.targets.item(), timed_out.advantages.item()) == (3.0, 0.0)


@pytest.mark.parametrize(("rho_bar", "c_bar", "pg_rho_bar", "lam"), [(1.0, 1.0, 1.0, 1.0), (3.7, 2.2, 1.9, 0.9)])
def test_vtrace_is_the_papers_sum(rho_bar: float, c_bar: float, pg_rho_bar: float, lam: float) -> None:
    gamma = 0.9
    rollout = random_rollout(6)
    r, v, nv, terminated, done = rollout.values()
    log_rhos = 1.5 * torch.randn(T, B, dtype=torch.float64)
    rho = log_rhos.exp()
    targets, advantages = torch.zeros_like(r), torch.zeros_like(r)
    for b in range(B):
        for s in range(T):
            targets[s, b] = v[s, b]
            trace = 1.0
            for t in range(s, T):
                delta = rho[t, b].clamp(max=rho_bar) * (r[t, b] + gamma * nv[t, b] * (not terminated[t, b]) - v[t, b])
                targets[s, b] += gamma ** (t - s) * trace * delta
                trace *= lam * min(c_bar, rho[t, b].item())
                if done[t, b]:
                    break
        for s in range(T):
            if terminated[s, b]:
                following = torch.zeros(())
            elif done[s, b] or s == T - 1:
                following = nv[s, b]
            else:
                following = lam * targets[s + 1, b] + (1.0 - lam) * nv[s, b]
            advantages[s, b] = rho[s, b].clamp(max=pg_rho_bar) * (r[s, b] + gamma * following - v[s, b])
    result = vtrace(
        log_rhos, **rollout, gamma=gamma, rho_bar=rho_bar, c_bar=c_bar, pg_rho_bar=pg_rho_bar, gae_lambda=lam
    )
    torch.testing.assert_close(result.targets, targets)
    torch.testing.assert_close(result.advantages, advantages)
    torch.testing.assert_close(result.rhos, rho)


@pytest.mark.parametrize("lam", [1.0, 0.8])
def test_vtrace_on_policy_is_gae(lam: float) -> None:
    rollout = random_rollout(7)
    on_policy = torch.zeros(T, B, dtype=torch.float64)
    result = vtrace(on_policy, **rollout, gamma=0.9, gae_lambda=lam)
    advantages = gae(**rollout, gamma=0.9, gae_lambda=lam)
    torch.testing.assert_close(result.targets, advantages + rollout["values"])
    torch.testing.assert_close(result.advantages, advantages)


def test_vtraces_lambda_is_rlaxs_and_not_seed_rls() -> None:
    # On policy, gamma 1/2, lambda 1/2, V = [1, 2], next V = [2, 4], r = [1, 1]: delta = [1, 1], A_1 = 1
    # rlax, and GAE: A_0 = delta_0 + gamma lambda A_1 = 1.25.  SEED RL: A_0 = delta_0 + gamma A_1 = 1.5.
    none = flags(0, 0)
    rollout = {"rewards": column(1, 1), "values": column(1, 2), "next_values": column(2, 4)}
    result = vtrace(column(0, 0), **rollout, terminated=none, done=none, gamma=0.5, gae_lambda=0.5)
    torch.testing.assert_close(result.advantages, column(1.25, 1.0))
    torch.testing.assert_close(result.targets, column(2.25, 3.0))


def test_no_gradient_reaches_the_values_through_a_target() -> None:
    rollout = random_rollout(8)
    values = rollout["values"].clone().requires_grad_()
    next_values = rollout["next_values"].clone().requires_grad_()
    rollout |= {"values": values, "next_values": next_values}
    log_rhos = torch.zeros(T, B, dtype=torch.float64, requires_grad=True)
    outputs = [
        *vtrace(log_rhos, **rollout, gamma=0.9),
        gae(**rollout, gamma=0.9, gae_lambda=0.9),
        n_step_returns(**without(rollout, "values"), gamma=0.9, n=3),
        lambda_returns(rollout["rewards"], next_values, discounts=torch.ones(T, B), gae_lambda=0.9),
    ]
    assert not any(output.requires_grad for output in outputs)
