"""Dreamer's assembled loss, with its gradients, against a slow reference that is written from the paper."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
import torch

from reference_dreamer import DreamerReference
from rl_training.algorithms.dreamer import Dreamer
from test_dreamer_update import BOX, DISCRETE, IMAGE, VECTOR, make_batch, make_dreamer
from test_planner_losses import captured_loss

SCALES = {"dyn_scale": 0.7, "rep_scale": 0.2, "replay_value_scale": 0.4, "entropy_coef": 0.05, "gamma": 0.9}


def shaken_dreamer(observation: gym.Space, action: gym.Space, **params: Any) -> Dreamer:
    """No head is zero, the slow critic is another one, and returns are wide enough for their scale to matter."""
    algorithm = make_dreamer(observation, action, **{**SCALES, "horizon": 3, **params})
    generator = torch.Generator().manual_seed(1)
    for module, width in ((algorithm.policy, 0.1), (algorithm.slow_critic.network, 0.2)):
        for parameter in module.parameters():
            parameter.data += width * torch.randn(parameter.shape, generator=generator)
    for head in (algorithm.policy.reward, algorithm.policy.critic):
        head.last.bias.data += torch.linspace(-1.0, 1.0, 41)
    algorithm.return_scale.averages = torch.tensor([-3.0, 5.0])
    return algorithm


def eventful_batch(algorithm: Dreamer) -> dict[str, Any]:
    """A termination, a time limit and a beginning inside of the sequences, and rewards that differ."""
    batch = make_batch(algorithm, steps=4, batch=2)
    batch["rewards"] = torch.tensor([[0.5, -1.0], [2.0, 0.0], [-3.0, 1.0], [0.7, 4.0]])
    batch["terminal"][1, 0] = True
    batch["is_last"][1, 0] = batch["is_last"][2, 1] = True
    batch["is_first"][2, 0] = batch["is_first"][3, 1] = True
    return batch


@pytest.mark.parametrize("free_nats", [0.0, 8.0], ids=["all divergence costs", "free nats"])
@pytest.mark.parametrize(
    ("observation", "action"), [(VECTOR, DISCRETE), (VECTOR, BOX), (IMAGE, DISCRETE)], ids=["discrete", "box", "image"]
)
def test_dreamers_loss_is_the_papers(observation: gym.Space, action: gym.Space, free_nats: float) -> None:
    algorithm = shaken_dreamer(observation, action, free_nats=free_nats)
    batch = eventful_batch(algorithm)
    reference = DreamerReference(algorithm, batch).total()
    loss = captured_loss(algorithm, batch)
    torch.testing.assert_close(loss, reference, rtol=1e-4, atol=1e-4)
    names, parameters = zip(*algorithm.policy.named_parameters(), strict=True)
    found, wanted = (torch.autograd.grad(x, parameters) for x in (loss, reference))
    for name, own, literal in zip(names, found, wanted, strict=True):
        torch.testing.assert_close(own, literal, rtol=2e-3, atol=2e-4, msg=lambda m, n=name: f"{n}: {m}")
        assert literal.any() or (free_nats and name.startswith("rssm.prior_net")), name


def test_behaviour_may_be_learned_from_the_last_states_of_each_sequence_alone() -> None:
    algorithm = shaken_dreamer(VECTOR, DISCRETE, imagine_last=3)
    batch = eventful_batch(algorithm)
    reference = DreamerReference(algorithm, batch).total()
    loss = captured_loss(algorithm, batch)
    torch.testing.assert_close(loss, reference, rtol=1e-4, atol=1e-4)
    from_all = captured_loss(shaken_dreamer(VECTOR, DISCRETE), batch)
    assert not torch.isclose(from_all, loss, rtol=1e-3)


def test_an_update_clips_each_tensors_gradient_by_its_own_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = shaken_dreamer(VECTOR, DISCRETE, agc=1e-3)
    shares: list[float] = []
    step = algorithm.optimizer.optimizer.step

    def watched() -> None:
        norms = [(float(p.grad.norm()), float(p.detach().norm())) for p in algorithm.policy.parameters()]
        shares.extend(grad / max(weight, 1e-3) for grad, weight in norms)
        step()

    monkeypatch.setattr(algorithm.optimizer.optimizer, "step", watched)
    algorithm.update(eventful_batch(algorithm))
    assert len(shares) == len(list(algorithm.policy.parameters()))
    assert max(shares) == pytest.approx(1e-3, rel=1e-3)


def test_no_action_is_impossible_to_the_actor() -> None:
    """One per cent is uniform, however sure the network is."""
    model = make_dreamer().policy
    model.head.linear.bias.data = torch.tensor([1e4, -1e4])
    chances = model.head(model.actor(torch.zeros(1, model.rssm.size.deter + model.rssm.size.stoch))).exp()
    torch.testing.assert_close(chances, torch.tensor([[0.995, 0.005]]))
