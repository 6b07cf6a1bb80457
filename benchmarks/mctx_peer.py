"""The same search by mctx on JAX: the same network sizes, one jitted call for a batch of roots."""

from __future__ import annotations

import os
from collections.abc import Callable

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import jax.numpy as jnp
import mctx

POLICIES = {"puct": mctx.muzero_policy, "gumbel": mctx.gumbel_muzero_policy}
EPS = 0.001


def random_weights(actions: int, size: int, bins: int) -> dict[str, tuple[jax.Array, jax.Array]]:
    shapes = {
        "hidden": (size + actions, size),
        "latent": (size, size),
        "reward": (size, bins),
        "features": (size, size),
        "policy": (size, actions),
        "value": (size, bins),
    }
    keys = jax.random.split(jax.random.key(0), 2 * len(shapes))
    return {
        name: (0.1 * jax.random.normal(keys[2 * i], shape), 0.1 * jax.random.normal(keys[2 * i + 1], shape[1:]))
        for i, (name, shape) in enumerate(shapes.items())
    }


def scalar(logits: jax.Array) -> jax.Array:
    """Signed parabolic of the mean of a categorical over −S … S."""
    half = logits.shape[-1] // 2
    x = jax.nn.softmax(logits) @ jnp.arange(-half, half + 1, dtype=jnp.float32)
    root = (jnp.sqrt(1 + 4 * EPS * (jnp.abs(x) + 1 + EPS)) - 1) / (2 * EPS)
    return jnp.sign(x) * (root**2 - 1)


def searcher(rule: str, actions: int, roots: int, simulations: int, size: int, bins: int) -> Callable[[], object]:
    """A call that searches from `roots` states."""
    weights = random_weights(actions, size, bins)

    def dense(name: str, x: jax.Array) -> jax.Array:
        weight, bias = weights[name]
        return x @ weight + bias

    def predict(latents: jax.Array) -> tuple[jax.Array, jax.Array]:
        features = jax.nn.relu(dense("features", latents))
        return dense("policy", features), scalar(dense("value", features))

    def recurrent(_: object, __: object, action: jax.Array, latents: jax.Array) -> tuple[object, jax.Array]:
        inputs = jnp.concatenate([latents, jax.nn.one_hot(action, actions)], axis=-1)
        hidden = jax.nn.relu(dense("hidden", inputs))
        following = dense("latent", hidden)
        low, high = following.min(-1, keepdims=True), following.max(-1, keepdims=True)
        following = (following - low) / (high - low + 1e-5)
        logits, values = predict(following)
        output = mctx.RecurrentFnOutput(
            reward=scalar(dense("reward", hidden)),
            discount=jnp.full_like(values, 0.99),
            prior_logits=logits,
            value=values,
        )
        return output, following

    @jax.jit
    def run(key: jax.Array, latents: jax.Array) -> jax.Array:
        logits, values = predict(latents)
        root = mctx.RootFnOutput(prior_logits=logits, value=values, embedding=latents)
        return POLICIES[rule]((), key, root, recurrent, num_simulations=simulations).action_weights

    latents = jax.random.uniform(jax.random.key(1), (roots, size))
    key = jax.random.key(2)
    return lambda: run(key, latents).block_until_ready()
