"""DreamerV3's parts: each loss by hand, where gradients go, and that the state begins anew with every episode."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor

from rl_training.algorithms.dreamer import (
    Dreamer,
    DreamerParams,
    ReturnScale,
    actor_loss,
    continue_loss,
    critic_loss,
    kl_losses,
    reconstruction_loss,
    replay_returns,
    trajectory_weights,
)
from rl_training.algorithms.laprop import LaProp, clip_adaptively_
from rl_training.envs.types import Spaces
from rl_training.errors import ConfigError
from rl_training.kernels import Mode, using
from rl_training.models.dreamer import SIZES, DreamerModel
from rl_training.models.normed import NormedActivation
from rl_training.models.observation_codec import ObsDecoder, ObsEncoder, ObsReader, Seen
from rl_training.models.rssm import RSSM, Latent, RSSMSize, gated
from rl_training.ops.categorical import (
    one_hot_sample,
    straight_through,
    symmetric_mean,
    two_hot_cross_entropy,
    unimix,
)
from rl_training.ops.returns import lambda_returns
from rl_training.ops.transforms import expected_value, symexp_bins, symlog, two_hot
from rl_training.runtime.dreamer_trainer import DreamerLearner

VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (16, 16, 1), np.uint8)
DISCRETE = spaces.Discrete(2)
BOX = spaces.Box(-2.0, 2.0, (1,), np.float32)
CHOICES = spaces.MultiDiscrete([2, 3])


def make_dreamer(observation: gym.Space = VECTOR, action: gym.Space = DISCRETE, **params: Any) -> Dreamer:
    torch.manual_seed(0)
    model = DreamerModel(Spaces(observation, action), SIZES["nano"], num_bins=41, bin_limit=20.0, image_layout="auto")
    return Dreamer(model, DreamerParams(**{"learning_rate": 1e-3, "horizon": 4, **params}))


def make_batch(algorithm: Dreamer, steps: int = 5, batch: int = 3, seed: int = 0) -> dict[str, Any]:
    rng = torch.Generator().manual_seed(seed)
    is_first = torch.zeros(steps, batch, dtype=torch.bool)
    is_first[0] = True
    if algorithm.policy.reader.image_shapes:
        obs = torch.randint(256, (steps, batch, 16, 16, 1), generator=rng).to(torch.uint8)
    else:
        obs = torch.randn(steps, batch, 3, generator=rng)
    head = algorithm.policy.head
    return {
        "obs": obs,
        "previous_actions": torch.randint(2, (steps, batch, *head.action_shape), generator=rng)
        if head.action_dtype == torch.int64
        else torch.randn(steps, batch, 1, generator=rng),
        "rewards": torch.ones(steps, batch),
        "terminal": torch.zeros(steps, batch, dtype=torch.bool),
        "is_first": is_first,
        "is_last": torch.zeros(steps, batch, dtype=torch.bool),
    }


def probs(*rows: list[float]) -> Tensor:
    """[1, G, K]"""
    return torch.tensor([rows])


def test_unimix_by_hand() -> None:
    # softmax(0, ln 3) = (1/4, 3/4); 0.99 · 1/4 + 0.01 / 2 = 0.2525
    torch.testing.assert_close(unimix(torch.tensor([0.0, math.log(3.0)])), torch.tensor([0.2525, 0.7475]))
    extreme = unimix(torch.tensor([1e4, -1e4]))
    torch.testing.assert_close(extreme, torch.tensor([0.995, 0.005]))


def test_a_uniform_number_chooses_the_class_in_whose_share_it_lies() -> None:
    shares = torch.tensor([0.2, 0.5, 0.3]).expand(5, 3)
    uniform = torch.tensor([0.0, 0.19, 0.21, 0.71, 0.9999999])[:, None]
    assert one_hot_sample(shares, uniform).argmax(-1).tolist() == [0, 0, 1, 2, 2]


def test_samples_have_the_frequencies_of_their_probabilities() -> None:
    shares = torch.tensor([0.1, 0.6, 0.3])
    drawn = one_hot_sample(shares.expand(20_000, 3), torch.rand(20_000, 1, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(drawn.mean(0), shares, atol=0.015, rtol=0)


def test_the_straight_through_gradient_is_that_of_the_probabilities() -> None:
    logits = torch.tensor([0.3, -0.2], requires_grad=True)
    shares = unimix(logits)
    sample = straight_through(torch.tensor([1.0, 0.0]), shares)
    assert sample.tolist() == [1.0, 0.0]
    (through,) = torch.autograd.grad(sample[0], logits, retain_graph=True)
    (own,) = torch.autograd.grad(shares[0], logits)
    torch.testing.assert_close(through, own)


def test_two_hot_cross_entropy_is_the_dense_one() -> None:
    bins = symexp_bins(41)
    log_probs = torch.randn(6, 41, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    targets = torch.tensor([0.0, 1.0, -3.7, 200.0, 1e12, -1e12])
    dense = -(two_hot(targets, bins) * log_probs).sum(-1)
    torch.testing.assert_close(two_hot_cross_entropy(log_probs, targets, bins), dense)


def test_the_mean_over_mirrored_bins_is_the_mean_and_zero_before_learning() -> None:
    bins = symexp_bins(255)
    assert symmetric_mean(torch.zeros(255).softmax(-1), bins) == 0.0
    targets = torch.tensor([0.0, 0.3, -17.0, 250.0])
    torch.testing.assert_close(symmetric_mean(two_hot(targets, bins), bins), targets)
    logits = two_hot(targets, bins).clamp(min=1e-30).log()
    torch.testing.assert_close(symmetric_mean(logits.softmax(-1), bins), expected_value(logits, bins))


def test_the_outermost_bin_is_symexp_of_the_limit() -> None:
    """Bins that reach less far lie as close with fewer of them: 89 to ±7 as 255 to ±20."""
    params = DreamerParams(size="nano", num_bins=89, bin_limit=7.0)
    bins = DreamerLearner.build_algorithm(params, Spaces(VECTOR, DISCRETE)).policy.bins
    assert float(bins[-1]) == pytest.approx(math.expm1(7.0))
    spacing = symlog(bins).diff()
    torch.testing.assert_close(spacing, torch.full_like(spacing, 14 / 88), rtol=1e-3, atol=1e-4)
    assert float(spacing[0]) == pytest.approx(40 / 254, rel=0.02)


def test_kl_by_hand_each_side_with_its_own_gradient() -> None:
    # KL((0.9, 0.1) ‖ (0.5, 0.5)) = ln 2 + 0.9 ln 0.9 + 0.1 ln 0.1 = 0.3681, and twice that for two such variables.
    posterior, prior = (probs(row, row).requires_grad_() for row in ([0.9, 0.1], [0.5, 0.5]))
    dynamics, representation = kl_losses(posterior, prior, free_nats=0.0)
    assert dynamics.item() == pytest.approx(0.7362, abs=1e-4)
    assert representation.item() == pytest.approx(0.7362, abs=1e-4)
    assert torch.autograd.grad(dynamics, [posterior, prior], allow_unused=True, retain_graph=True)[0] is None
    assert torch.autograd.grad(representation, [posterior, prior], allow_unused=True)[1] is None


def test_free_nats_leave_no_gradient_below_them() -> None:
    """The floor is for the sum over variables, not for each of them."""
    posterior, prior = (probs(row, row).requires_grad_() for row in ([0.9, 0.1], [0.5, 0.5]))
    for loss, side in zip(kl_losses(posterior, prior, free_nats=1.0), (prior, posterior), strict=True):
        assert loss.item() == 1.0
        assert not torch.autograd.grad(loss, side, retain_graph=True)[0].any()
    for loss, side in zip(kl_losses(posterior, prior, free_nats=0.7), (prior, posterior), strict=True):
        assert torch.autograd.grad(loss, side, retain_graph=True)[0].any()


def test_reconstruction_is_summed_over_an_observation() -> None:
    seen = Seen(symlog(torch.tensor([[math.e - 1.0, 0.0]])), (torch.zeros(1, 1, 2, 2),))
    predicted = Seen(torch.zeros(1, 2), (torch.full((1, 1, 2, 2), 0.5),))
    assert reconstruction_loss(predicted, seen).item() == pytest.approx(1.0 + 4 * 0.25)


def test_the_world_goes_on_unless_it_is_terminal() -> None:
    logits = torch.tensor([2.0, 2.0])
    gradient = torch.autograd.functional.jacobian(
        lambda x: continue_loss(x, torch.tensor([False, True])), logits
    )  # σ(2) − target, over two rows
    probability = 1 / (1 + math.exp(-2.0))
    torch.testing.assert_close(gradient, torch.tensor([probability - 1.0, probability]) / 2)


def test_trajectory_weights_by_hand() -> None:
    """The first state's own end counts undiscounted: nothing that is imagined after an end matters."""
    continues = torch.tensor([[1.0, 0.0], [0.5, 1.0], [1.0, 1.0]])
    expected = torch.tensor([[1.0, 0.0], [0.45, 0.0], [0.405, 0.0]])
    torch.testing.assert_close(trajectory_weights(continues, 0.9), expected)


def test_lambda_returns_against_the_literal_sum() -> None:
    """R_t = Σ_n (1 − λ) λⁿ⁻¹ G_t⁽ⁿ⁾, the last with all the weight that is left."""
    rng = torch.Generator().manual_seed(0)
    rewards, values = (torch.rand(4, 1, generator=rng) for _ in range(2))
    discounts = torch.tensor([0.9, 0.0, 0.9, 0.9])[:, None]  # an end inside
    lam = 0.8

    def n_step(t: int, n: int) -> Tensor:
        total, weight = torch.zeros(1), torch.ones(1)
        for k in range(t, t + n):
            total, weight = total + weight * rewards[k], weight * discounts[k]
        return total + weight * values[t + n - 1]

    literal = []
    for t in range(4):
        steps = 4 - t
        mixed = sum(((1 - lam) * lam ** (n - 1) * n_step(t, n) for n in range(1, steps)), torch.zeros(1))
        literal.append(mixed + lam ** (steps - 1) * n_step(t, steps))
    fast = lambda_returns(rewards, values, discounts=discounts, gae_lambda=lam)
    torch.testing.assert_close(fast, torch.stack(literal))


def column(*numbers: float) -> Tensor:
    return torch.tensor(numbers)[:, None]


def test_replay_returns_by_hand_at_a_termination_and_at_a_time_limit() -> None:
    """Four arrivals with rewards (·, 1, 2, 3), all bootstraps 10, γ = λ = 0.5; the episode ends with the third."""
    rewards, bootstraps = column(9.0, 1.0, 2.0, 3.0), torch.full((4, 1), 10.0)
    is_last = column(0, 0, 1, 0).bool()
    options = {"gamma": 0.5, "gae_lambda": 0.5}
    # R_2 is of another episode's making and carries no weight. Terminal: R_1 = 2, R_0 = 1 + 0.5 (0.5·10 + 0.5·2) = 4.
    terminal = replay_returns(rewards, is_last, is_last, bootstraps, **options)
    torch.testing.assert_close(terminal[:2], column(4.0, 2.0))
    # Truncated: R_1 = 2 + 0.5·10 = 7, R_0 = 1 + 0.5 (0.5·10 + 0.5·7) = 5.25.
    truncated = replay_returns(rewards, torch.zeros_like(is_last), is_last, bootstraps, **options)
    torch.testing.assert_close(truncated[:2], column(5.25, 7.0))


def test_the_return_scale_by_hand() -> None:
    """The 5th and 95th percentile of 0 … 100 are 5 and 95; a rate of 0.5 gives 2.5 and 47.5, then 3.75 and 71.25."""
    scale = ReturnScale(rate=0.5)
    returns = torch.arange(101.0)
    assert scale.update(returns).item() == pytest.approx(45.0)
    assert scale.update(returns).item() == pytest.approx(67.5)
    twin = ReturnScale(rate=0.5)
    twin.load_state_dict(scale.state_dict())
    assert twin.update(returns) == scale.update(returns)


def test_small_returns_are_not_blown_up() -> None:
    assert ReturnScale(rate=1.0).update(torch.linspace(0.0, 0.1, 50)).item() == 1.0


def test_the_actor_loss_by_hand() -> None:
    logprobs, entropy, advantages, weights = (
        torch.tensor(x) for x in ([-1.0, -2.0], [0.5, 0.5], [2.0, 1.0], [1.0, 0.5])
    )
    # −mean(1 · (−2 + 0.1·0.5), 0.5 · (−2 + 0.1·0.5)) = 1.4625
    loss = actor_loss(logprobs, entropy, advantages, weights=weights, entropy_coef=0.1)
    assert loss.item() == pytest.approx(1.4625)


def test_the_critic_learns_returns_and_stays_near_the_slow_one() -> None:
    bins = torch.tensor([-1.0, 0.0, 1.0])
    log_probs = torch.log(torch.tensor([[0.25, 0.25, 0.5]]))
    # −(ln 0.5 for the return 1) − (½ ln 0.25 + ½ ln 0.5 for the slow value ½)
    loss = critic_loss(log_probs, torch.tensor([1.0]), torch.tensor([0.5]), weights=torch.ones(1), bins=bins)
    assert loss.item() == pytest.approx(math.log(2) + 1.5 * math.log(2))


def test_the_slow_critic_is_a_moving_average() -> None:
    algorithm = make_dreamer(slow_critic_rate=0.25)
    before = [p.clone() for p in algorithm.slow_critic.network.parameters()]
    algorithm.update(make_batch(algorithm))
    fast = list(algorithm.policy.critic.parameters())
    for old, slow, new in zip(before, algorithm.slow_critic.network.parameters(), fast, strict=True):
        torch.testing.assert_close(slow, 0.75 * old + 0.25 * new)
        assert not slow.requires_grad


def grads_of(loss: Tensor, algorithm: Dreamer) -> set[str]:
    """The parts of the model that the loss moves."""
    names, parameters = zip(*algorithm.policy.named_parameters(), strict=True)
    grads = torch.autograd.grad(loss, parameters, allow_unused=True, retain_graph=True)
    return {name.split(".")[0] for name, grad in zip(names, grads, strict=True) if grad is not None and grad.any()}


@pytest.mark.parametrize("action", [DISCRETE, BOX, CHOICES], ids=["discrete", "box", "choices"])
def test_each_loss_moves_its_own_part(action: gym.Space) -> None:
    """Imagination teaches the actor and the critic and leaves the world model alone."""
    algorithm = make_dreamer(action=action)
    batch = make_batch(algorithm)
    for _ in range(3):  # before that the zero-initialised heads pass no gradient on
        algorithm.update(batch)
    seen = algorithm.policy.reader(batch["obs"].flatten(0, 1))
    observed = algorithm.observed(seen, batch)
    behaviour = algorithm.behaviour_loss(observed.latent, batch)
    model_loss, _ = algorithm.model_loss(observed, seen, batch)
    assert grads_of(behaviour.actor, algorithm) == {"actor", "head"}
    assert grads_of(behaviour.critic, algorithm) == {"critic"}
    assert grads_of(behaviour.replay_critic, algorithm) == {"critic", "rssm", "encoder"}
    assert grads_of(model_loss, algorithm) == {"encoder", "rssm", "decoder", "reward", "goes_on"}


def make_rssm(blocks: int = 1) -> RSSM:
    torch.manual_seed(0)
    return RSSM(RSSMSize(deter=16, hidden=8, groups=3, classes=4, blocks=blocks), action_size=2, token_size=5)


@pytest.mark.parametrize("blocks", [1, 4])
def test_the_state_begins_anew_inside_a_sequence(blocks: int) -> None:
    """What follows a first observation is what it would be if nothing had been before."""
    rssm = make_rssm(blocks)
    tokens, actions, uniform = torch.randn(6, 2, 5), torch.rand(6, 2, 2), torch.rand(6, 2, 3, 1)
    is_first = torch.zeros(6, 2, dtype=torch.bool)
    is_first[0] = True
    is_first[3, 1] = True
    whole = rssm.observe(tokens, actions, is_first, uniform).latent
    is_first[3] = True
    alone = rssm.observe(tokens[3:], actions[3:], is_first[3:], uniform[3:]).latent
    torch.testing.assert_close(whole.features[3:, 1], alone.features[:, 1])
    assert not torch.allclose(whole.deter[3:, 0], alone.deter[:, 0])


@pytest.mark.parametrize("blocks", [1, 4])
def test_a_sequence_is_its_steps(blocks: int) -> None:
    rssm = make_rssm(blocks)
    tokens, actions, uniform = torch.randn(4, 2, 5), torch.rand(4, 2, 2), torch.rand(4, 2, 3, 1)
    is_first = torch.zeros(4, 2, dtype=torch.bool)
    is_first[0] = True
    observed = rssm.observe(tokens, actions, is_first, uniform)
    latent = rssm.initial(2)
    for t in range(4):
        deter = rssm.advance(latent, actions[t] * (t > 0))
        posterior = rssm.posterior(deter, tokens[t])
        latent = Latent(deter, rssm.sample(posterior, uniform[t]))
        torch.testing.assert_close(observed.latent.deter[t], latent.deter)
        torch.testing.assert_close(observed.latent.stoch[t], latent.stoch)
        torch.testing.assert_close(observed.posterior[t], posterior)
        torch.testing.assert_close(observed.prior[t], rssm.prior(deter))


def test_blocks_do_not_mix_within_the_gates() -> None:
    """The deterministic state of one block reaches another through the shared inputs only."""
    rssm = make_rssm(blocks=4)
    hidden = torch.randn(1, 4, 4, requires_grad=True)
    (grad,) = torch.autograd.grad(rssm.gates(hidden)[:, 2].sum(), hidden)
    assert grad[:, 2].all()
    assert not grad[:, [0, 1, 3]].any()


@pytest.mark.parametrize("observation", [VECTOR, IMAGE], ids=["vector", "image"])
@pytest.mark.parametrize("action", [DISCRETE, BOX], ids=["discrete", "box"])
def test_updates_make_the_world_predictable(observation: gym.Space, action: gym.Space) -> None:
    algorithm = make_dreamer(observation, action)
    batch = make_batch(algorithm)
    first = algorithm.update(batch).metrics
    for _ in range(30):
        last = algorithm.update(batch).metrics
    for name in ("reconstruction_loss", "reward_loss", "continue_loss", "value_loss"):
        assert last[name] < first[name], name
    assert algorithm.is_finite()


def test_the_carried_state_is_what_a_sequence_would_have() -> None:
    """Acting step by step and observing the same steps at once agree: the previous action is carried along."""
    algorithm = make_dreamer()
    model = algorithm.policy
    obs = torch.randn(4, 2, 3)
    state, actions, states = model.initial_state(2), [], []
    for t in range(4):
        acted = model.act(obs[t], state, deterministic=True)
        state = acted.state
        actions.append(acted.actions)
        states.append(state[:, : model.rssm.size.deter])
    is_first = torch.zeros(4, 2, dtype=torch.bool)
    is_first[0] = True
    previous = model.encode_actions(torch.stack([torch.zeros_like(actions[0]), *actions[:-1]]))
    tokens = model.encoder(model.reader(obs.flatten(0, 1))).unflatten(0, (4, 2))
    sampled = model.rssm.observe(tokens, previous, is_first, torch.zeros(4, 2, 8, 1))
    torch.testing.assert_close(sampled.latent.deter[0], states[0])
    latent = model.rssm.initial(2)
    for t in range(4):
        deter = model.rssm.advance(latent, previous[t] * (t > 0))
        latent = Latent(deter, model.rssm.sample(model.rssm.posterior(deter, tokens[t]), None))
        torch.testing.assert_close(deter, states[t])


def test_actions_are_bounded_and_the_model_sees_what_is_executed() -> None:
    model = make_dreamer(action=BOX).policy
    with torch.no_grad():
        acted = model.act(torch.randn(64, 3), model.initial_state(64), generator=torch.Generator().manual_seed(0))
    executed = model.env_actions(acted.actions.numpy())
    assert np.abs(executed).max() <= 2.0
    torch.testing.assert_close(model.encode_actions(acted.actions), torch.from_numpy(executed / 2.0))


@pytest.mark.parametrize(
    ("low", "high", "ends"),
    [
        (-np.inf, np.inf, (-1, 1)),
        (0.0, np.inf, (0, 2)),
        (-np.inf, -3.0, (-5, -3)),
        (5.0, np.inf, (5, 7)),
        (-2, 6, (-2, 6)),
    ],
)
def test_the_executed_action_is_the_one_that_the_world_model_is_told(
    low: float, high: float, ends: tuple[float, float]
) -> None:
    """Both are the sample clipped to [−1, 1], of which the environment sees an interval that it allows."""
    model = make_dreamer(action=spaces.Box(low, high, (2,), np.float32)).policy
    samples = 2.0 * torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    told = model.encode_actions(samples).numpy()
    first, last = ends
    np.testing.assert_allclose(model.env_actions(samples.numpy()), first + (told + 1) / 2 * (last - first), atol=1e-5)


def test_several_choices_at_once_are_each_one_hot_and_one_per_cent_uniform() -> None:
    model = make_dreamer(action=CHOICES).policy
    assert model.encode_actions(torch.tensor([[1, 0]])).tolist() == [[0, 1, 1, 0, 0]]
    with torch.no_grad():
        chances = model.head(100.0 * torch.randn(50, SIZES["nano"].units)).exp()
    torch.testing.assert_close(chances[:, :2].sum(-1), torch.ones(50))
    torch.testing.assert_close(chances[:, 2:].sum(-1), torch.ones(50))
    assert chances[:, :2].min() >= 0.005 - 1e-6
    assert chances[:, 2:].min() >= 0.01 / 3 - 1e-6


def test_a_mapping_of_images_numbers_and_classes_is_encoded_and_decoded() -> None:
    space = spaces.Dict({"image": spaces.Box(0, 255, (84, 84, 3), np.uint8), "n": spaces.Discrete(5), "x": VECTOR})
    reader = ObsReader(space, "auto")
    obs = {
        "x": torch.randn(2, 3),
        "n": torch.tensor([0, 4]),
        "image": torch.randint(256, (2, 84, 84, 3)).to(torch.uint8),
    }
    seen = reader(obs)
    assert seen.vector.shape == (2, 8)
    assert seen.images[0].shape == (2, 3, 64, 64)  # 84 is no number that can be halved to 4
    codec = SIZES["nano"].codec
    encoder = ObsEncoder(reader, codec)
    assert encoder(seen).shape == (2, encoder.out_features)
    decoded = ObsDecoder(reader, 7, codec)(torch.randn(2, 7))
    assert [decoded.vector.shape, decoded.images[0].shape] == [seen.vector.shape, seen.images[0].shape]


@pytest.mark.parametrize("shape", [(10, 10, 1), (1, 7, 7), (36, 36, 3), (64, 96, 3)])
def test_images_of_any_size_come_back_at_the_size_that_is_reconstructed(shape: tuple[int, ...]) -> None:
    reader = ObsReader(spaces.Box(0, 255, shape, np.uint8), "auto")
    seen = reader(torch.zeros(2, *shape, dtype=torch.uint8))
    encoder = ObsEncoder(reader, SIZES["nano"].codec)
    assert encoder(seen).shape[-1] == encoder.out_features
    assert ObsDecoder(reader, 5, SIZES["nano"].codec)(torch.zeros(2, 5)).images[0].shape == seen.images[0].shape


def test_spaces_that_are_not_for_dreamer_are_refused() -> None:
    with pytest.raises(ConfigError, match="use Discrete, MultiDiscrete or Box"):
        make_dreamer(action=spaces.MultiBinary(2))


def test_laprop_by_hand() -> None:
    """Gradient 2 twice: normalised it is 1 both times, so the momentum is 1 and each step is the learning rate."""
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = LaProp([weight], lr=0.1, eps=1e-20)
    for expected in (0.9, 0.8):
        weight.grad = torch.tensor([2.0])
        optimizer.step()
        assert weight.item() == pytest.approx(expected)


def test_gradients_are_clipped_in_proportion_to_their_weights() -> None:
    weights = [torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.0]), torch.zeros(1)]
    grads = [torch.tensor([0.0, 10.0]), torch.tensor([0.0, 1.0]), torch.tensor([1.0])]
    clip_adaptively_(weights, grads, 0.3)  # at most 0.3 · 5 = 1.5, and 0.3 · 0.001 for weights that are zero
    torch.testing.assert_close(grads, [torch.tensor([0.0, 1.5]), torch.tensor([0.0, 1.0]), torch.tensor([3e-4])])


def test_a_restored_algorithm_goes_on_bit_for_bit() -> None:
    algorithm, twin = make_dreamer(), make_dreamer()
    batch = make_batch(algorithm)
    algorithm.update(batch)
    state = {name: _copied(part) for name, part in algorithm.state_dict().items()}
    twin.load_state_dict(state)
    a, b = algorithm.update(batch).metrics, twin.update(batch).metrics
    assert {name: float(value) for name, value in a.items()} == {name: float(value) for name, value in b.items()}
    assert all(torch.equal(p, q) for p, q in zip(algorithm.policy.parameters(), twin.policy.parameters(), strict=True))


def _copied(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    return tree.clone() if isinstance(tree, Tensor) else tree


BOTH = pytest.mark.parametrize("mode", ["auto", "off"])


@BOTH
@pytest.mark.parametrize("groups", [1, 3])
def test_the_normed_activation_and_its_gradient_are_those_of_the_definition(groups: int, mode: Mode) -> None:
    """SiLU(w x / √(mean x² + ε)), the mean over each group."""
    layer = NormedActivation(6, groups)
    layer.scale.data = torch.tensor([0.5, 1.0, 1.5, -1.0, 2.0, 0.1])
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    parts = x.unflatten(-1, (groups, -1))
    literal = F.silu((parts / (parts.square().mean(-1, keepdim=True) + 1e-4).sqrt()).flatten(-2) * layer.scale)
    weights = torch.arange(24.0).reshape(4, 6)
    expected = torch.autograd.grad((literal * weights).sum(), [x, layer.scale])
    with using(mode):
        torch.testing.assert_close(layer(x), literal)
        own = torch.autograd.grad((layer(x) * weights).sum(), [x, layer.scale])
        torch.testing.assert_close(own, expected, atol=1e-4, rtol=1e-4)
        with torch.no_grad():
            torch.testing.assert_close(layer(x), literal)


@BOTH
def test_probabilities_samples_and_gradients_are_those_in_double_precision(mode: Mode) -> None:
    """Doubles take the plain way."""
    logits, weights = 3.0 * torch.randn(2, 64, 5, 7, generator=torch.Generator().manual_seed(0))
    uniform = torch.rand(64, 5, 1, generator=torch.Generator().manual_seed(1))
    answers = []
    for dtype in (torch.float32, torch.float64):
        given = logits.to(dtype).requires_grad_()
        with using(mode):
            shares = unimix(given)
            (grad,) = torch.autograd.grad((shares * weights.to(dtype)).sum(), given)
            answers.append([x.float() for x in (shares, one_hot_sample(shares, uniform.to(dtype)), grad)])
    torch.testing.assert_close(*answers, atol=1e-6, rtol=1e-5)


@BOTH
def test_the_gates_are_those_of_the_definition(mode: Mode) -> None:
    """h' = (1 − u) h + u tanh(r c), r = σ(·), u = σ(· − 1)."""
    gates, state = 5.0 * torch.randn(6, 2, 12), torch.randn(6, 2, 4)
    reset, candidate, update = gates.chunk(3, dim=-1)
    share = torch.sigmoid(update - 1.0)
    literal = (1.0 - share) * state + share * torch.tanh(torch.sigmoid(reset) * candidate)
    torch.testing.assert_close(gated(gates, state), literal)
    with torch.no_grad(), using(mode):
        torch.testing.assert_close(gated(gates, state), literal)


@pytest.mark.parametrize("blocks", [1, 4])
def test_the_sequence_as_one_node_has_the_states_and_gradients_of_the_plain_loop(blocks: int) -> None:
    """Doubles take the plain loop. A state begins anew inside; every output has a part in the loss."""
    rng = torch.Generator().manual_seed(0)
    tokens, actions, uniform = (torch.randn(6, 3, 5), torch.rand(6, 3, 2), torch.rand(6, 3, 3, 1, generator=rng))
    is_first = torch.zeros(6, 3, dtype=torch.bool)
    is_first[0] = is_first[3, 1] = True
    rssm = make_rssm(blocks)
    for parameter in rssm.parameters():  # biases begin at zero, scales at one
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=rng)
    answers = []
    for dtype in (torch.float32, torch.float64):
        rssm, given = rssm.to(dtype), tokens.to(dtype).requires_grad_()
        with using("auto"):
            observed = rssm.observe(given, actions.to(dtype), is_first, uniform.to(dtype))
        outputs = [*observed.latent, observed.posterior, observed.prior]
        loss = sum((x * torch.linspace(-1.0, 2.0, x.numel()).view_as(x)).sum() for x in outputs)
        grads = torch.autograd.grad(loss, [given, *rssm.parameters()])
        answers.append([x.float() for x in (*outputs, *grads)])
    torch.testing.assert_close(*answers, atol=1e-5, rtol=1e-4)


def test_no_compiled_pass_hides_what_is_not_a_number() -> None:
    with torch.no_grad(), using("auto"):
        nothing = torch.full((2, 48), math.nan)
        for answer in (unimix(nothing), gated(nothing, torch.zeros(2, 16)), NormedActivation(48)(nothing)):
            assert answer.isnan().all()
