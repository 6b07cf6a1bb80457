"""Made by `python docs/build.py`; do not edit."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, TypedDict

from typing_extensions import Unpack

from rl_training.api.agent import Agent
from rl_training.envs.sources import EnvSource
from rl_training.experiment.registry import AlgorithmRow

class RunKeys(TypedDict, total=False):
    tasks: list[str]
    """several environments trained together, in place of env_id."""
    env_kwargs: dict[str, Any]
    """passed to the environment."""
    eval_env_kwargs: dict[str, Any]
    """what evaluation changes in env_kwargs."""
    wrappers: list[Any]
    """wrappers by name or module:name, innermost first."""
    backend: Literal['auto', 'sync', 'async', 'native', 'atari', 'envpool', 'ray']
    """how environments are stepped; ray: by workers."""
    collect_ahead: bool
    """collect the next rollout in a second process while learning; data is one rollout old."""
    workers: int
    """processes on Ray that share num_envs."""
    worker_backend: Literal['auto', 'sync', 'async', 'native', 'atari', 'envpool']
    """how each of them steps its environments."""
    ray_mode: Literal['sync', 'async']
    """wait for all workers, or learn meanwhile."""
    ray_address: str | None
    """of a running cluster, or auto; default: this machine."""
    step_timeout_s: float
    """longest step of an environment; 0: no limit."""
    env_restarts: int
    """how often a dead async environment is replaced."""
    learners: int
    """processes on Ray that share every update."""
    num_envs: int
    """environments that step together."""
    seed: int
    """fixes every random stream of the run."""
    total_timesteps: int
    """environment steps over all environments together."""
    schedule_horizon: int | None
    """where schedules end; default: total_timesteps."""
    device: Literal['auto', 'cpu', 'cuda', 'mps']
    """where networks live."""
    threads: int | None
    """torch threads; default: 1, all cores for images."""
    kernels: Literal['auto', 'off']
    """compiled twins of plain functions where they apply."""
    output_dir: str
    """parent of run directories."""
    run_name: str | None
    """name of the run directory; default: time and seed."""
    eval_episodes: int
    """greedy episodes of an evaluation; 0: never evaluate."""
    eval_interval: int | None
    """steps between evaluations; default: at the end only."""
    eval_max_steps: int | None
    """where an evaluation's episode is cut; default: 10 times the longest of training."""
    eval_in_background: bool
    """periodic evaluations on Ray, beside training."""
    checkpoint_interval: int
    """steps between checkpoints."""
    keep_checkpoints: int
    """how many of the latest checkpoints to keep."""
    log_interval: int
    """steps between rows of metrics."""
    loggers: list[Any]
    """jsonl, csv, tensorboard, wandb, mlflow, trackio, or module:name."""
    tracker_project: str
    """the project that trackers file runs under."""
    tracker_artifacts: list[Literal['config', 'controls', 'videos', 'checkpoint']]
    """files that trackers keep: config, controls (as used), videos, checkpoint (the last)."""
    callbacks: list[Any]
    """callbacks of your own as module:name."""
    init_from: str | None
    """run or model whose policy a new run starts from."""
    init_checkpoint: str | int
    """which of its checkpoints: latest, best or a step."""
    target_return: float | None
    """stop when an evaluation's mean reaches it."""
    early_stop_patience: int | None
    """stop after so many evaluations without a best."""
    defaults: Literal['algorithm', 'environment']
    """what is not given: the algorithm's defaults, or those for the kind of environment."""

class PPO(Agent):
    """Proximal Policy Optimization (arXiv:1707.06347, 2017).

    Args:
        env: an id, module:factory, or something that makes or is an environment
        learning_rate: step size of the optimizer
        gamma: discount of a step
        gae_lambda: decay of the traces of advantages
        ent_coef: weight of the entropy bonus
        max_grad_norm: bound on the norm of the gradient
        normalize_advantages: bring advantages to mean 0 and deviation 1, batch by batch
        rollout_steps: rows of every environment in a rollout
        optimizer: how gradients become steps
        adam_eps: added to the optimizer's denominator, RMSprop's too
        hidden_sizes: widths of the hidden layers for vectors
        activation: between the layers of an MLP
        cnn: convolutional network for images
        image_layout: which axis of images has the channels; auto: the one that differs from the other two, or the shorter end
        precision: of the CNN for images and grids, whose weights stay float32: bfloat16 is quicker where the processor has it, and coarser; auto: where it has it
        torso: network that reads observations: a name (mlp, layer_norm_mlp, nature_cnn, impala_cnn, shallow_cnn, grid_cnn), module:Class, in Python also a class or a callable, or one of these for each key of a Dict; default: the space decides
        torso_kwargs: passed to the torso behind the space; for each key where the torsos are
        policy: policy of your own, module:Class or in Python a class or a callable: it is given the spaces and policy_kwargs
        policy_kwargs: passed to a policy of your own behind the spaces
        share_torso: policy and value share features; default: for images only
        log_std_init: first logarithm of the deviation of Box actions
        state_dependent_std: let the deviation of Box actions depend on the observation
        squash_actions: sample Box actions as the tanh of a Gaussian in place of clipping them at their bounds
        normalize_obs: bring observations to mean 0 and deviation 1, by running statistics
        normalize_reward: divide rewards by the deviation of their discounted sum
        rnd: also pay for new observations, by random network distillation
        rnd_coef: weight of that bonus beside the reward
        rnd_learning_rate: step size of the network that predicts the random one
        rnd_updates: its steps on each rollout
        rnd_batch: rows in each of them
        rnd_features: outputs of the random network
        vf_coef: weight of the value error
        clip_coef: how far the probability ratio may leave 1
        clip_value_loss: clip the value's step by clip_coef, too
        update_epochs: passes over each rollout
        num_minibatches: parts of each pass
        batch_size: rows of a minibatch, in place of num_minibatches; a rollout with fewer is one minibatch
        target_kl: stop the epochs once approx_kl exceeds it
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env: EnvSource | None = None,
        *,
        learning_rate: float = 0.0003,
        learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        learning_rate_warmup_steps: int = ...,
        gamma: float = 0.99,
        gamma_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gamma_warmup_steps: int = ...,
        gae_lambda: float = 0.95,
        gae_lambda_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gae_lambda_warmup_steps: int = ...,
        ent_coef: float = 0.0,
        ent_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        ent_coef_warmup_steps: int = ...,
        max_grad_norm: float = 0.5,
        max_grad_norm_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        max_grad_norm_warmup_steps: int = ...,
        normalize_advantages: bool = True,
        rollout_steps: int = 128,
        optimizer: Literal['adam', 'rmsprop'] = 'adam',
        adam_eps: float = 1e-05,
        hidden_sizes: tuple[int, ...] = (64, 64),
        activation: Literal['tanh', 'relu', 'silu', 'elu'] = 'tanh',
        cnn: Literal['nature', 'impala', 'shallow'] = 'nature',
        image_layout: Literal['auto', 'channels_first', 'channels_last'] = 'auto',
        precision: Literal['float32', 'bfloat16', 'auto'] = 'float32',
        torso: Any = None,
        torso_kwargs: dict[str, Any] = {},
        policy: Any = None,
        policy_kwargs: dict[str, Any] = {},
        share_torso: bool | None = None,
        log_std_init: float = 0.0,
        state_dependent_std: bool = False,
        squash_actions: bool = False,
        normalize_obs: bool = False,
        normalize_reward: bool = False,
        rnd: bool = False,
        rnd_coef: float = 0.1,
        rnd_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rnd_coef_warmup_steps: int = ...,
        rnd_learning_rate: float = 0.001,
        rnd_learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rnd_learning_rate_warmup_steps: int = ...,
        rnd_updates: int = 16,
        rnd_batch: int = 256,
        rnd_features: int = 64,
        vf_coef: float = 0.5,
        vf_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        vf_coef_warmup_steps: int = ...,
        clip_coef: float = 0.2,
        clip_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        clip_coef_warmup_steps: int = ...,
        clip_value_loss: bool = False,
        update_epochs: int = 4,
        num_minibatches: int = 4,
        batch_size: int | None = None,
        target_kl: float | None = None,
        target_kl_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        target_kl_warmup_steps: int = ...,
        **run: Unpack[RunKeys],
    ) -> None: ...

class A2C(Agent):
    """Advantage Actor-Critic (arXiv:1602.01783, 2016).

    Args:
        env: an id, module:factory, or something that makes or is an environment
        learning_rate: step size of the optimizer
        gamma: discount of a step
        gae_lambda: 1: n-step returns, as in the paper
        ent_coef: weight of the entropy bonus
        max_grad_norm: bound on the norm of the gradient
        normalize_advantages: bring advantages to mean 0 and deviation 1, batch by batch
        rollout_steps: rows of every environment in a rollout
        optimizer: how gradients become steps
        adam_eps: added to the optimizer's denominator, RMSprop's too
        hidden_sizes: widths of the hidden layers for vectors
        activation: between the layers of an MLP
        cnn: convolutional network for images
        image_layout: which axis of images has the channels; auto: the one that differs from the other two, or the shorter end
        precision: of the CNN for images and grids, whose weights stay float32: bfloat16 is quicker where the processor has it, and coarser; auto: where it has it
        torso: network that reads observations: a name (mlp, layer_norm_mlp, nature_cnn, impala_cnn, shallow_cnn, grid_cnn), module:Class, in Python also a class or a callable, or one of these for each key of a Dict; default: the space decides
        torso_kwargs: passed to the torso behind the space; for each key where the torsos are
        policy: policy of your own, module:Class or in Python a class or a callable: it is given the spaces and policy_kwargs
        policy_kwargs: passed to a policy of your own behind the spaces
        share_torso: policy and value share features; default: for images only
        log_std_init: first logarithm of the deviation of Box actions
        state_dependent_std: let the deviation of Box actions depend on the observation
        squash_actions: sample Box actions as the tanh of a Gaussian in place of clipping them at their bounds
        normalize_obs: bring observations to mean 0 and deviation 1, by running statistics
        normalize_reward: divide rewards by the deviation of their discounted sum
        rnd: also pay for new observations, by random network distillation
        rnd_coef: weight of that bonus beside the reward
        rnd_learning_rate: step size of the network that predicts the random one
        rnd_updates: its steps on each rollout
        rnd_batch: rows in each of them
        rnd_features: outputs of the random network
        vf_coef: weight of the value error
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env: EnvSource | None = None,
        *,
        learning_rate: float = 0.0007,
        learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        learning_rate_warmup_steps: int = ...,
        gamma: float = 0.99,
        gamma_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gamma_warmup_steps: int = ...,
        gae_lambda: float = 1.0,
        gae_lambda_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gae_lambda_warmup_steps: int = ...,
        ent_coef: float = 0.0,
        ent_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        ent_coef_warmup_steps: int = ...,
        max_grad_norm: float = 0.5,
        max_grad_norm_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        max_grad_norm_warmup_steps: int = ...,
        normalize_advantages: bool = False,
        rollout_steps: int = 5,
        optimizer: Literal['adam', 'rmsprop'] = 'rmsprop',
        adam_eps: float = 1e-05,
        hidden_sizes: tuple[int, ...] = (64, 64),
        activation: Literal['tanh', 'relu', 'silu', 'elu'] = 'tanh',
        cnn: Literal['nature', 'impala', 'shallow'] = 'nature',
        image_layout: Literal['auto', 'channels_first', 'channels_last'] = 'auto',
        precision: Literal['float32', 'bfloat16', 'auto'] = 'float32',
        torso: Any = None,
        torso_kwargs: dict[str, Any] = {},
        policy: Any = None,
        policy_kwargs: dict[str, Any] = {},
        share_torso: bool | None = None,
        log_std_init: float = 0.0,
        state_dependent_std: bool = False,
        squash_actions: bool = False,
        normalize_obs: bool = False,
        normalize_reward: bool = False,
        rnd: bool = False,
        rnd_coef: float = 0.1,
        rnd_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rnd_coef_warmup_steps: int = ...,
        rnd_learning_rate: float = 0.001,
        rnd_learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rnd_learning_rate_warmup_steps: int = ...,
        rnd_updates: int = 16,
        rnd_batch: int = 256,
        rnd_features: int = 64,
        vf_coef: float = 0.5,
        vf_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        vf_coef_warmup_steps: int = ...,
        **run: Unpack[RunKeys],
    ) -> None: ...

class TRPO(Agent):
    """Trust Region Policy Optimization (arXiv:1502.05477, 2015).

    Args:
        env: an id, module:factory, or something that makes or is an environment
        learning_rate: of the critic
        gamma: discount of a step
        gae_lambda: decay of the traces of advantages
        ent_coef: weight of the entropy bonus
        max_grad_norm: of the critic
        normalize_advantages: bring advantages to mean 0 and deviation 1, batch by batch
        rollout_steps: rows of every environment in a rollout
        optimizer: how gradients become steps
        adam_eps: added to the optimizer's denominator, RMSprop's too
        hidden_sizes: widths of the hidden layers for vectors
        activation: between the layers of an MLP
        cnn: convolutional network for images
        image_layout: which axis of images has the channels; auto: the one that differs from the other two, or the shorter end
        precision: of the CNN for images and grids, whose weights stay float32: bfloat16 is quicker where the processor has it, and coarser; auto: where it has it
        torso: network that reads observations: a name (mlp, layer_norm_mlp, nature_cnn, impala_cnn, shallow_cnn, grid_cnn), module:Class, in Python also a class or a callable, or one of these for each key of a Dict; default: the space decides
        torso_kwargs: passed to the torso behind the space; for each key where the torsos are
        policy: policy of your own, module:Class or in Python a class or a callable: it is given the spaces and policy_kwargs
        policy_kwargs: passed to a policy of your own behind the spaces
        share_torso: policy and value share features; default: for images only
        log_std_init: first logarithm of the deviation of Box actions
        state_dependent_std: let the deviation of Box actions depend on the observation
        squash_actions: sample Box actions as the tanh of a Gaussian in place of clipping them at their bounds
        normalize_obs: bring observations to mean 0 and deviation 1, by running statistics
        normalize_reward: divide rewards by the deviation of their discounted sum
        rnd: also pay for new observations, by random network distillation
        rnd_coef: weight of that bonus beside the reward
        rnd_learning_rate: step size of the network that predicts the random one
        rnd_updates: its steps on each rollout
        rnd_batch: rows in each of them
        rnd_features: outputs of the random network
        target_kl: bound on the mean KL of the policy's step
        cg_iterations: steps of conjugate gradients
        cg_damping: added to the diagonal of the Fisher matrix
        line_search_shrink: by how much a rejected step is shortened
        line_search_attempts: steps tried before the policy stays where it is
        critic_updates: passes over the rollout that fit the critic
        num_minibatches: parts of each of the critic's passes
        batch_size: rows of a minibatch, in place of num_minibatches; a rollout with fewer is one minibatch
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env: EnvSource | None = None,
        *,
        learning_rate: float = 0.001,
        learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        learning_rate_warmup_steps: int = ...,
        gamma: float = 0.99,
        gamma_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gamma_warmup_steps: int = ...,
        gae_lambda: float = 0.95,
        gae_lambda_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gae_lambda_warmup_steps: int = ...,
        ent_coef: float = 0.0,
        ent_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        ent_coef_warmup_steps: int = ...,
        max_grad_norm: float = 0.5,
        max_grad_norm_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        max_grad_norm_warmup_steps: int = ...,
        normalize_advantages: bool = True,
        rollout_steps: int = 128,
        optimizer: Literal['adam', 'rmsprop'] = 'adam',
        adam_eps: float = 1e-05,
        hidden_sizes: tuple[int, ...] = (64, 64),
        activation: Literal['tanh', 'relu', 'silu', 'elu'] = 'tanh',
        cnn: Literal['nature', 'impala', 'shallow'] = 'nature',
        image_layout: Literal['auto', 'channels_first', 'channels_last'] = 'auto',
        precision: Literal['float32', 'bfloat16', 'auto'] = 'float32',
        torso: Any = None,
        torso_kwargs: dict[str, Any] = {},
        policy: Any = None,
        policy_kwargs: dict[str, Any] = {},
        share_torso: bool | None = None,
        log_std_init: float = 0.0,
        state_dependent_std: bool = False,
        squash_actions: bool = False,
        normalize_obs: bool = False,
        normalize_reward: bool = False,
        rnd: bool = False,
        rnd_coef: float = 0.1,
        rnd_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rnd_coef_warmup_steps: int = ...,
        rnd_learning_rate: float = 0.001,
        rnd_learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rnd_learning_rate_warmup_steps: int = ...,
        rnd_updates: int = 16,
        rnd_batch: int = 256,
        rnd_features: int = 64,
        target_kl: float = 0.01,
        target_kl_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        target_kl_warmup_steps: int = ...,
        cg_iterations: int = 10,
        cg_damping: float = 0.1,
        cg_damping_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        cg_damping_warmup_steps: int = ...,
        line_search_shrink: float = 0.8,
        line_search_attempts: int = 10,
        critic_updates: int = 10,
        num_minibatches: int = 8,
        batch_size: int | None = None,
        **run: Unpack[RunKeys],
    ) -> None: ...

class RecurrentPPO(Agent):
    """Recurrent PPO (arXiv:1707.06347, 2017).

    Args:
        env: an id, module:factory, or something that makes or is an environment
        learning_rate: step size of the optimizer
        gamma: discount of a step
        gae_lambda: decay of the traces of advantages
        ent_coef: weight of the entropy bonus
        max_grad_norm: bound on the norm of the gradient
        normalize_advantages: bring advantages to mean 0 and deviation 1, batch by batch
        rollout_steps: rows of every environment in a rollout
        optimizer: how gradients become steps
        adam_eps: added to the optimizer's denominator, RMSprop's too
        hidden_sizes: widths of the hidden layers for vectors
        activation: between the layers of an MLP
        cnn: convolutional network for images
        image_layout: which axis of images has the channels; auto: the one that differs from the other two, or the shorter end
        precision: of the CNN for images and grids, whose weights stay float32: bfloat16 is quicker where the processor has it, and coarser; auto: where it has it
        torso: network that reads observations: a name (mlp, layer_norm_mlp, nature_cnn, impala_cnn, shallow_cnn, grid_cnn), module:Class, in Python also a class or a callable, or one of these for each key of a Dict; default: the space decides
        torso_kwargs: passed to the torso behind the space; for each key where the torsos are
        policy: policy of your own, module:Class or in Python a class or a callable: it is given the spaces and policy_kwargs
        policy_kwargs: passed to a policy of your own behind the spaces
        share_torso: policy and value share features; default: for images only
        log_std_init: first logarithm of the deviation of Box actions
        state_dependent_std: let the deviation of Box actions depend on the observation
        squash_actions: sample Box actions as the tanh of a Gaussian in place of clipping them at their bounds
        normalize_obs: bring observations to mean 0 and deviation 1, by running statistics
        normalize_reward: divide rewards by the deviation of their discounted sum
        rnd: also pay for new observations, by random network distillation
        rnd_coef: weight of that bonus beside the reward
        rnd_learning_rate: step size of the network that predicts the random one
        rnd_updates: its steps on each rollout
        rnd_batch: rows in each of them
        rnd_features: outputs of the random network
        vf_coef: weight of the value error
        clip_coef: how far the probability ratio may leave 1
        clip_value_loss: clip the value's step by clip_coef, too
        update_epochs: passes over each rollout
        num_minibatches: parts of each pass
        batch_size: rows of a minibatch, in place of num_minibatches; a rollout with fewer is one minibatch
        target_kl: stop the epochs once approx_kl exceeds it
        cell: kind of memory
        recurrent_size: width of the memory
        memory_length: observations that a transformer sees
        attention_heads: heads of a transformer, which share its width
        sequence_length: rows of a sequence; default: the whole rollout
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env: EnvSource | None = None,
        *,
        learning_rate: float = 0.0003,
        learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        learning_rate_warmup_steps: int = ...,
        gamma: float = 0.99,
        gamma_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gamma_warmup_steps: int = ...,
        gae_lambda: float = 0.95,
        gae_lambda_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gae_lambda_warmup_steps: int = ...,
        ent_coef: float = 0.0,
        ent_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        ent_coef_warmup_steps: int = ...,
        max_grad_norm: float = 0.5,
        max_grad_norm_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        max_grad_norm_warmup_steps: int = ...,
        normalize_advantages: bool = True,
        rollout_steps: int = 128,
        optimizer: Literal['adam', 'rmsprop'] = 'adam',
        adam_eps: float = 1e-05,
        hidden_sizes: tuple[int, ...] = (64,),
        activation: Literal['tanh', 'relu', 'silu', 'elu'] = 'tanh',
        cnn: Literal['nature', 'impala', 'shallow'] = 'nature',
        image_layout: Literal['auto', 'channels_first', 'channels_last'] = 'auto',
        precision: Literal['float32', 'bfloat16', 'auto'] = 'float32',
        torso: Any = None,
        torso_kwargs: dict[str, Any] = {},
        policy: Any = None,
        policy_kwargs: dict[str, Any] = {},
        share_torso: bool | None = None,
        log_std_init: float = 0.0,
        state_dependent_std: bool = False,
        squash_actions: bool = False,
        normalize_obs: bool = False,
        normalize_reward: bool = False,
        rnd: bool = False,
        rnd_coef: float = 0.1,
        rnd_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rnd_coef_warmup_steps: int = ...,
        rnd_learning_rate: float = 0.001,
        rnd_learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rnd_learning_rate_warmup_steps: int = ...,
        rnd_updates: int = 16,
        rnd_batch: int = 256,
        rnd_features: int = 64,
        vf_coef: float = 0.5,
        vf_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        vf_coef_warmup_steps: int = ...,
        clip_coef: float = 0.2,
        clip_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        clip_coef_warmup_steps: int = ...,
        clip_value_loss: bool = False,
        update_epochs: int = 10,
        num_minibatches: int = 4,
        batch_size: int | None = None,
        target_kl: float | None = None,
        target_kl_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        target_kl_warmup_steps: int = ...,
        cell: Literal['lstm', 'gru', 'transformer'] = 'lstm',
        recurrent_size: int = 64,
        memory_length: int = 16,
        attention_heads: int = 4,
        sequence_length: int | None = None,
        **run: Unpack[RunKeys],
    ) -> None: ...

class IMPALA(Agent):
    """Importance Weighted Actor-Learner Architecture (arXiv:1802.01561, 2018).

    Args:
        env: an id, module:factory, or something that makes or is an environment
        learning_rate: step size of the optimizer
        gamma: discount of a step
        gae_lambda: decay of V-trace's traces, as in rlax; the paper's is 1
        ent_coef: weight of the entropy bonus
        max_grad_norm: bound on the norm of the gradient
        normalize_advantages: bring advantages to mean 0 and deviation 1, batch by batch
        rollout_steps: rows of every environment in a rollout
        optimizer: how gradients become steps
        adam_eps: added to the optimizer's denominator, RMSprop's too
        hidden_sizes: widths of the hidden layers for vectors
        activation: between the layers of an MLP
        cnn: convolutional network for images
        image_layout: which axis of images has the channels; auto: the one that differs from the other two, or the shorter end
        precision: of the CNN for images and grids, whose weights stay float32: bfloat16 is quicker where the processor has it, and coarser; auto: where it has it
        torso: network that reads observations: a name (mlp, layer_norm_mlp, nature_cnn, impala_cnn, shallow_cnn, grid_cnn), module:Class, in Python also a class or a callable, or one of these for each key of a Dict; default: the space decides
        torso_kwargs: passed to the torso behind the space; for each key where the torsos are
        policy: policy of your own, module:Class or in Python a class or a callable: it is given the spaces and policy_kwargs
        policy_kwargs: passed to a policy of your own behind the spaces
        share_torso: policy and value share features; default: for images only
        log_std_init: first logarithm of the deviation of Box actions
        state_dependent_std: let the deviation of Box actions depend on the observation
        squash_actions: sample Box actions as the tanh of a Gaussian in place of clipping them at their bounds
        normalize_obs: bring observations to mean 0 and deviation 1, by running statistics
        normalize_reward: divide rewards by the deviation of their discounted sum
        rnd: also pay for new observations, by random network distillation
        rnd_coef: weight of that bonus beside the reward
        rnd_learning_rate: step size of the network that predicts the random one
        rnd_updates: its steps on each rollout
        rnd_batch: rows in each of them
        rnd_features: outputs of the random network
        vf_coef: weight of the value error
        rho_bar: bound on the ratios in V-trace's temporal differences
        c_bar: bound on the ratios in V-trace's traces
        num_minibatches: parts of each pass
        batch_size: rows of a minibatch, in place of num_minibatches; a rollout with fewer is one minibatch
        update_epochs: passes over each rollout
        target_kl: stop a rollout's passes once they raised approx_kl by more
        pg_rho_bar: bound on the ratios in the policy gradient
        kl_coef: weight of the KL to the policy that acted
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env: EnvSource | None = None,
        *,
        learning_rate: float = 0.0003,
        learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        learning_rate_warmup_steps: int = ...,
        gamma: float = 0.99,
        gamma_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gamma_warmup_steps: int = ...,
        gae_lambda: float = 1.0,
        gae_lambda_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gae_lambda_warmup_steps: int = ...,
        ent_coef: float = 0.0,
        ent_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        ent_coef_warmup_steps: int = ...,
        max_grad_norm: float = 0.5,
        max_grad_norm_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        max_grad_norm_warmup_steps: int = ...,
        normalize_advantages: bool = False,
        rollout_steps: int = 20,
        optimizer: Literal['adam', 'rmsprop'] = 'adam',
        adam_eps: float = 1e-05,
        hidden_sizes: tuple[int, ...] = (64, 64),
        activation: Literal['tanh', 'relu', 'silu', 'elu'] = 'tanh',
        cnn: Literal['nature', 'impala', 'shallow'] = 'nature',
        image_layout: Literal['auto', 'channels_first', 'channels_last'] = 'auto',
        precision: Literal['float32', 'bfloat16', 'auto'] = 'float32',
        torso: Any = None,
        torso_kwargs: dict[str, Any] = {},
        policy: Any = None,
        policy_kwargs: dict[str, Any] = {},
        share_torso: bool | None = None,
        log_std_init: float = 0.0,
        state_dependent_std: bool = False,
        squash_actions: bool = False,
        normalize_obs: bool = False,
        normalize_reward: bool = False,
        rnd: bool = False,
        rnd_coef: float = 0.1,
        rnd_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rnd_coef_warmup_steps: int = ...,
        rnd_learning_rate: float = 0.001,
        rnd_learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rnd_learning_rate_warmup_steps: int = ...,
        rnd_updates: int = 16,
        rnd_batch: int = 256,
        rnd_features: int = 64,
        vf_coef: float = 0.5,
        vf_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        vf_coef_warmup_steps: int = ...,
        rho_bar: float = 1.0,
        rho_bar_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rho_bar_warmup_steps: int = ...,
        c_bar: float = 1.0,
        c_bar_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        c_bar_warmup_steps: int = ...,
        num_minibatches: int = 1,
        batch_size: int | None = None,
        update_epochs: int = 1,
        target_kl: float | None = None,
        target_kl_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        target_kl_warmup_steps: int = ...,
        pg_rho_bar: float = 1.0,
        pg_rho_bar_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        pg_rho_bar_warmup_steps: int = ...,
        kl_coef: float = 0.0,
        kl_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        kl_coef_warmup_steps: int = ...,
        **run: Unpack[RunKeys],
    ) -> None: ...

class APPO(Agent):
    """Asynchronous PPO (arXiv:1912.00167, 2019).

    Args:
        env: an id, module:factory, or something that makes or is an environment
        learning_rate: step size of the optimizer
        gamma: discount of a step
        gae_lambda: decay of V-trace's traces, as in rlax; the paper's is 1
        ent_coef: weight of the entropy bonus
        max_grad_norm: bound on the norm of the gradient
        normalize_advantages: bring advantages to mean 0 and deviation 1, batch by batch
        rollout_steps: rows of every environment in a rollout
        optimizer: how gradients become steps
        adam_eps: added to the optimizer's denominator, RMSprop's too
        hidden_sizes: widths of the hidden layers for vectors
        activation: between the layers of an MLP
        cnn: convolutional network for images
        image_layout: which axis of images has the channels; auto: the one that differs from the other two, or the shorter end
        precision: of the CNN for images and grids, whose weights stay float32: bfloat16 is quicker where the processor has it, and coarser; auto: where it has it
        torso: network that reads observations: a name (mlp, layer_norm_mlp, nature_cnn, impala_cnn, shallow_cnn, grid_cnn), module:Class, in Python also a class or a callable, or one of these for each key of a Dict; default: the space decides
        torso_kwargs: passed to the torso behind the space; for each key where the torsos are
        policy: policy of your own, module:Class or in Python a class or a callable: it is given the spaces and policy_kwargs
        policy_kwargs: passed to a policy of your own behind the spaces
        share_torso: policy and value share features; default: for images only
        log_std_init: first logarithm of the deviation of Box actions
        state_dependent_std: let the deviation of Box actions depend on the observation
        squash_actions: sample Box actions as the tanh of a Gaussian in place of clipping them at their bounds
        normalize_obs: bring observations to mean 0 and deviation 1, by running statistics
        normalize_reward: divide rewards by the deviation of their discounted sum
        rnd: also pay for new observations, by random network distillation
        rnd_coef: weight of that bonus beside the reward
        rnd_learning_rate: step size of the network that predicts the random one
        rnd_updates: its steps on each rollout
        rnd_batch: rows in each of them
        rnd_features: outputs of the random network
        vf_coef: weight of the value error
        rho_bar: bound on the ratios in V-trace's temporal differences
        c_bar: bound on the ratios in V-trace's traces
        num_minibatches: parts of each pass
        batch_size: rows of a minibatch, in place of num_minibatches; a rollout with fewer is one minibatch
        update_epochs: passes over each rollout
        target_kl: stop a rollout's passes once they raised approx_kl by more
        clip_coef: how far the probability ratio may leave 1
        kl_coef: weight of the KL to the target network, or to the policy that acted
        target_update_interval: updates between copies to the target network, which gives V-trace its ratios; default: none
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env: EnvSource | None = None,
        *,
        learning_rate: float = 0.0003,
        learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        learning_rate_warmup_steps: int = ...,
        gamma: float = 0.99,
        gamma_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gamma_warmup_steps: int = ...,
        gae_lambda: float = 1.0,
        gae_lambda_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gae_lambda_warmup_steps: int = ...,
        ent_coef: float = 0.0,
        ent_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        ent_coef_warmup_steps: int = ...,
        max_grad_norm: float = 0.5,
        max_grad_norm_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        max_grad_norm_warmup_steps: int = ...,
        normalize_advantages: bool = True,
        rollout_steps: int = 20,
        optimizer: Literal['adam', 'rmsprop'] = 'adam',
        adam_eps: float = 1e-05,
        hidden_sizes: tuple[int, ...] = (64, 64),
        activation: Literal['tanh', 'relu', 'silu', 'elu'] = 'tanh',
        cnn: Literal['nature', 'impala', 'shallow'] = 'nature',
        image_layout: Literal['auto', 'channels_first', 'channels_last'] = 'auto',
        precision: Literal['float32', 'bfloat16', 'auto'] = 'float32',
        torso: Any = None,
        torso_kwargs: dict[str, Any] = {},
        policy: Any = None,
        policy_kwargs: dict[str, Any] = {},
        share_torso: bool | None = None,
        log_std_init: float = 0.0,
        state_dependent_std: bool = False,
        squash_actions: bool = False,
        normalize_obs: bool = False,
        normalize_reward: bool = False,
        rnd: bool = False,
        rnd_coef: float = 0.1,
        rnd_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rnd_coef_warmup_steps: int = ...,
        rnd_learning_rate: float = 0.001,
        rnd_learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rnd_learning_rate_warmup_steps: int = ...,
        rnd_updates: int = 16,
        rnd_batch: int = 256,
        rnd_features: int = 64,
        vf_coef: float = 0.5,
        vf_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        vf_coef_warmup_steps: int = ...,
        rho_bar: float = 1.0,
        rho_bar_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rho_bar_warmup_steps: int = ...,
        c_bar: float = 1.0,
        c_bar_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        c_bar_warmup_steps: int = ...,
        num_minibatches: int = 1,
        batch_size: int | None = None,
        update_epochs: int = 4,
        target_kl: float | None = None,
        target_kl_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        target_kl_warmup_steps: int = ...,
        clip_coef: float = 0.2,
        clip_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        clip_coef_warmup_steps: int = ...,
        kl_coef: float = 0.0,
        kl_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        kl_coef_warmup_steps: int = ...,
        target_update_interval: int | None = None,
        **run: Unpack[RunKeys],
    ) -> None: ...

class PPG(Agent):
    """Phasic Policy Gradient (arXiv:2009.04416, 2020).

    Args:
        env: an id, module:factory, or something that makes or is an environment
        learning_rate: step size of the optimizer
        gamma: discount of a step
        gae_lambda: decay of the traces of advantages
        ent_coef: weight of the entropy bonus
        max_grad_norm: bound on the norm of the gradient
        normalize_advantages: over the whole rollout
        rollout_steps: rows of every environment in a rollout
        optimizer: how gradients become steps
        adam_eps: added to the optimizer's denominator, RMSprop's too
        hidden_sizes: widths of the hidden layers for vectors
        activation: between the layers of an MLP
        cnn: convolutional network for images
        image_layout: which axis of images has the channels; auto: the one that differs from the other two, or the shorter end
        precision: of the CNN for images and grids, whose weights stay float32: bfloat16 is quicker where the processor has it, and coarser; auto: where it has it
        torso: network that reads observations: a name (mlp, layer_norm_mlp, nature_cnn, impala_cnn, shallow_cnn, grid_cnn), module:Class, in Python also a class or a callable, or one of these for each key of a Dict; default: the space decides
        torso_kwargs: passed to the torso behind the space; for each key where the torsos are
        policy: policy of your own, module:Class or in Python a class or a callable: it is given the spaces and policy_kwargs
        policy_kwargs: passed to a policy of your own behind the spaces
        share_torso: policy and value share features; default: for images only
        log_std_init: first logarithm of the deviation of Box actions
        state_dependent_std: let the deviation of Box actions depend on the observation
        squash_actions: sample Box actions as the tanh of a Gaussian in place of clipping them at their bounds
        normalize_obs: bring observations to mean 0 and deviation 1, by running statistics
        normalize_reward: brings value targets to the scale on which beta_clone can hold
        rnd: also pay for new observations, by random network distillation
        rnd_coef: weight of that bonus beside the reward
        rnd_learning_rate: step size of the network that predicts the random one
        rnd_updates: its steps on each rollout
        rnd_batch: rows in each of them
        rnd_features: outputs of the random network
        vf_coef: weight of the value error
        clip_coef: how far the probability ratio may leave 1
        clip_value_loss: clip the value's step by clip_coef, too
        update_epochs: passes over each rollout, E_pi of the paper
        num_minibatches: parts of each pass
        batch_size: rows of a minibatch, in place of num_minibatches; a rollout with fewer is one minibatch
        target_kl: stop the epochs once approx_kl exceeds it
        policy_phases: rollouts between two auxiliary phases, N_pi of the paper
        aux_epochs: passes of an auxiliary phase over its rollouts, E_aux of the paper
        aux_minibatches: parts of each of those passes
        beta_clone: how strongly an auxiliary phase holds the policy where it was
        aux_learning_rate: step size of the auxiliary phase
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env: EnvSource | None = None,
        *,
        learning_rate: float = 0.0003,
        learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        learning_rate_warmup_steps: int = ...,
        gamma: float = 0.99,
        gamma_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gamma_warmup_steps: int = ...,
        gae_lambda: float = 0.95,
        gae_lambda_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gae_lambda_warmup_steps: int = ...,
        ent_coef: float = 0.0,
        ent_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        ent_coef_warmup_steps: int = ...,
        max_grad_norm: float = 0.5,
        max_grad_norm_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        max_grad_norm_warmup_steps: int = ...,
        normalize_advantages: bool = True,
        rollout_steps: int = 128,
        optimizer: Literal['adam', 'rmsprop'] = 'adam',
        adam_eps: float = 1e-05,
        hidden_sizes: tuple[int, ...] = (64, 64),
        activation: Literal['tanh', 'relu', 'silu', 'elu'] = 'tanh',
        cnn: Literal['nature', 'impala', 'shallow'] = 'nature',
        image_layout: Literal['auto', 'channels_first', 'channels_last'] = 'auto',
        precision: Literal['float32', 'bfloat16', 'auto'] = 'float32',
        torso: Any = None,
        torso_kwargs: dict[str, Any] = {},
        policy: Any = None,
        policy_kwargs: dict[str, Any] = {},
        share_torso: bool | None = None,
        log_std_init: float = 0.0,
        state_dependent_std: bool = False,
        squash_actions: bool = False,
        normalize_obs: bool = False,
        normalize_reward: bool = True,
        rnd: bool = False,
        rnd_coef: float = 0.1,
        rnd_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rnd_coef_warmup_steps: int = ...,
        rnd_learning_rate: float = 0.001,
        rnd_learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rnd_learning_rate_warmup_steps: int = ...,
        rnd_updates: int = 16,
        rnd_batch: int = 256,
        rnd_features: int = 64,
        vf_coef: float = 0.5,
        vf_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        vf_coef_warmup_steps: int = ...,
        clip_coef: float = 0.2,
        clip_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        clip_coef_warmup_steps: int = ...,
        clip_value_loss: bool = False,
        update_epochs: int = 1,
        num_minibatches: int = 4,
        batch_size: int | None = None,
        target_kl: float | None = None,
        target_kl_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        target_kl_warmup_steps: int = ...,
        policy_phases: int = 32,
        aux_epochs: int = 6,
        aux_minibatches: int = 16,
        beta_clone: float = 1.0,
        beta_clone_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        beta_clone_warmup_steps: int = ...,
        aux_learning_rate: float = 0.0005,
        aux_learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        aux_learning_rate_warmup_steps: int = ...,
        **run: Unpack[RunKeys],
    ) -> None: ...

class GAIL(Agent):
    """Generative Adversarial Imitation Learning (arXiv:1606.03476, 2016).

    Args:
        env: an id, module:factory, or something that makes or is an environment
        learning_rate: step size of the optimizer
        gamma: discount of a step
        gae_lambda: decay of the traces of advantages
        ent_coef: weight of the entropy bonus
        max_grad_norm: bound on the norm of the gradient
        normalize_advantages: bring advantages to mean 0 and deviation 1, batch by batch
        rollout_steps: rows of every environment in a rollout
        optimizer: how gradients become steps
        adam_eps: added to the optimizer's denominator, RMSprop's too
        hidden_sizes: widths of the hidden layers for vectors
        activation: between the layers of an MLP
        cnn: convolutional network for images
        image_layout: which axis of images has the channels; auto: the one that differs from the other two, or the shorter end
        precision: of the CNN for images and grids, whose weights stay float32: bfloat16 is quicker where the processor has it, and coarser; auto: where it has it
        torso: network that reads observations: a name (mlp, layer_norm_mlp, nature_cnn, impala_cnn, shallow_cnn, grid_cnn), module:Class, in Python also a class or a callable, or one of these for each key of a Dict; default: the space decides
        torso_kwargs: passed to the torso behind the space; for each key where the torsos are
        policy: policy of your own, module:Class or in Python a class or a callable: it is given the spaces and policy_kwargs
        policy_kwargs: passed to a policy of your own behind the spaces
        share_torso: policy and value share features; default: for images only
        log_std_init: first logarithm of the deviation of Box actions
        state_dependent_std: let the deviation of Box actions depend on the observation
        squash_actions: sample Box actions as the tanh of a Gaussian in place of clipping them at their bounds
        normalize_obs: bring observations to mean 0 and deviation 1, by running statistics
        normalize_reward: divide rewards by the deviation of their discounted sum
        rnd: also pay for new observations, by random network distillation
        rnd_coef: weight of that bonus beside the reward
        rnd_learning_rate: step size of the network that predicts the random one
        rnd_updates: its steps on each rollout
        rnd_batch: rows in each of them
        rnd_features: outputs of the random network
        vf_coef: weight of the value error
        clip_coef: how far the probability ratio may leave 1
        clip_value_loss: clip the value's step by clip_coef, too
        update_epochs: passes over each rollout
        num_minibatches: parts of each pass
        batch_size: rows of a minibatch, in place of num_minibatches; a rollout with fewer is one minibatch
        target_kl: stop the epochs once approx_kl exceeds it
        demonstrations: a file, the name of a packaged one, or minari:DATASET
        imitation_reward: what a logit of the discriminator pays
        discriminator_learning_rate: step size of the discriminator
        discriminator_entropy_coef: weight of its entropy bonus
        discriminator_updates: discriminator steps on each rollout
        discriminator_batch: rows of the expert, and of the policy, in each
        spectral_norm: bounds the slope of the discriminator
        clone_updates: behaviour-cloning steps before the first update
        clone_learning_rate: step size of behaviour cloning
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env: EnvSource | None = None,
        *,
        learning_rate: float = 0.0003,
        learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        learning_rate_warmup_steps: int = ...,
        gamma: float = 0.99,
        gamma_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gamma_warmup_steps: int = ...,
        gae_lambda: float = 0.95,
        gae_lambda_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gae_lambda_warmup_steps: int = ...,
        ent_coef: float = 0.0,
        ent_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        ent_coef_warmup_steps: int = ...,
        max_grad_norm: float = 0.5,
        max_grad_norm_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        max_grad_norm_warmup_steps: int = ...,
        normalize_advantages: bool = True,
        rollout_steps: int = 128,
        optimizer: Literal['adam', 'rmsprop'] = 'adam',
        adam_eps: float = 1e-05,
        hidden_sizes: tuple[int, ...] = (64, 64),
        activation: Literal['tanh', 'relu', 'silu', 'elu'] = 'tanh',
        cnn: Literal['nature', 'impala', 'shallow'] = 'nature',
        image_layout: Literal['auto', 'channels_first', 'channels_last'] = 'auto',
        precision: Literal['float32', 'bfloat16', 'auto'] = 'float32',
        torso: Any = None,
        torso_kwargs: dict[str, Any] = {},
        policy: Any = None,
        policy_kwargs: dict[str, Any] = {},
        share_torso: bool | None = None,
        log_std_init: float = 0.0,
        state_dependent_std: bool = False,
        squash_actions: bool = False,
        normalize_obs: bool = False,
        normalize_reward: bool = True,
        rnd: bool = False,
        rnd_coef: float = 0.1,
        rnd_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rnd_coef_warmup_steps: int = ...,
        rnd_learning_rate: float = 0.001,
        rnd_learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rnd_learning_rate_warmup_steps: int = ...,
        rnd_updates: int = 16,
        rnd_batch: int = 256,
        rnd_features: int = 64,
        vf_coef: float = 0.5,
        vf_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        vf_coef_warmup_steps: int = ...,
        clip_coef: float = 0.2,
        clip_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        clip_coef_warmup_steps: int = ...,
        clip_value_loss: bool = False,
        update_epochs: int = 4,
        num_minibatches: int = 4,
        batch_size: int | None = None,
        target_kl: float | None = None,
        target_kl_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        target_kl_warmup_steps: int = ...,
        demonstrations: str | None = None,
        imitation_reward: Literal['softplus', 'logit', 'logsigmoid'] = 'softplus',
        discriminator_learning_rate: float = 0.0003,
        discriminator_learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        discriminator_learning_rate_warmup_steps: int = ...,
        discriminator_entropy_coef: float = 0.001,
        discriminator_entropy_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        discriminator_entropy_coef_warmup_steps: int = ...,
        discriminator_updates: int = 4,
        discriminator_batch: int = 256,
        spectral_norm: bool = True,
        clone_updates: int = 0,
        clone_learning_rate: float = 0.001,
        **run: Unpack[RunKeys],
    ) -> None: ...

class Dreamer(Agent):
    """DreamerV3 (arXiv:2301.04104, 2023).

    Args:
        env: an id, module:factory, or something that makes or is an environment
        rollout_steps: rows of every environment in a rollout
        batch_size: sequences in an update
        replay_capacity: rows that are kept
        store_replay: in checkpoints; without it a resumed run fills its replay anew
        learning_starts: rows in the replay before the first update
        random_steps: environment steps at the beginning that act at random
        size: of all networks
        image_layout: which axis of images has the channels; auto: the one that differs from the other two, or the shorter end
        num_bins: of the reward's and the value's distributions
        bin_limit: symlog of the outermost bin; 7 reaches to 1,096, 20 to 5e8
        sequence_length: observations in each of them
        train_ratio: observations replayed for each step of the environments
        learning_rate: step size of the optimizer
        optimizer: how gradients become steps
        optimizer_eps: added to the optimizer's denominator
        agc: largest gradient of a tensor, relative to the tensor
        entropy_coef: weight of the entropy bonus
        dyn_scale: of the loss that teaches the prior
        rep_scale: of the loss that makes the posterior predictable
        free_nats: divergence that costs nothing
        replay_value_scale: of the critic's loss on replayed states
        gamma: discount of a step
        gae_lambda: decay of the traces of λ-returns
        horizon: imagined steps
        imagine_last: states at the end of each sequence that dreams begin at; default: all
        torso: network that reads observations: a name (mlp, layer_norm_mlp, nature_cnn, impala_cnn, shallow_cnn, grid_cnn), module:Class, in Python also a class or a callable, or one of these for each key of a Dict; default: the space decides; it takes the encoder's place
        torso_kwargs: passed to the torso behind the space; for each key where the torsos are
        slow_critic_rate: share by which the slow critic follows in an update
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env: EnvSource | None = None,
        *,
        rollout_steps: int = 16,
        batch_size: int = 16,
        replay_capacity: int = 1000000,
        store_replay: bool = True,
        learning_starts: int = 1000,
        random_steps: int = 0,
        size: Literal['nano', 'xxs', 'xs', 's', 'm', 'l', 'xl'] = 'xs',
        image_layout: Literal['auto', 'channels_first', 'channels_last'] = 'auto',
        num_bins: int = 255,
        bin_limit: float = 20.0,
        sequence_length: int = 64,
        train_ratio: float = 32.0,
        train_ratio_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        train_ratio_warmup_steps: int = ...,
        learning_rate: float = 4e-05,
        learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        learning_rate_warmup_steps: int = ...,
        optimizer: Literal['laprop', 'adam'] = 'laprop',
        optimizer_eps: float = 1e-20,
        agc: float = 0.3,
        entropy_coef: float = 0.0003,
        entropy_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        entropy_coef_warmup_steps: int = ...,
        dyn_scale: float = 1.0,
        dyn_scale_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        dyn_scale_warmup_steps: int = ...,
        rep_scale: float = 0.1,
        rep_scale_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        rep_scale_warmup_steps: int = ...,
        free_nats: float = 1.0,
        free_nats_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        free_nats_warmup_steps: int = ...,
        replay_value_scale: float = 0.3,
        replay_value_scale_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        replay_value_scale_warmup_steps: int = ...,
        gamma: float = 0.997,
        gamma_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gamma_warmup_steps: int = ...,
        gae_lambda: float = 0.95,
        gae_lambda_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gae_lambda_warmup_steps: int = ...,
        horizon: int = 15,
        horizon_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        horizon_warmup_steps: int = ...,
        imagine_last: int | None = None,
        torso: Any = None,
        torso_kwargs: dict[str, Any] = {},
        slow_critic_rate: float = 0.02,
        **run: Unpack[RunKeys],
    ) -> None: ...

class MuZero(Agent):
    """MuZero (arXiv:1911.08265, 2019).

    Args:
        env: an id, module:factory, or something that makes or is an environment
        rollout_steps: rows of every environment in a rollout
        batch_size: rows or windows in an update
        replay_capacity: rows that are kept
        store_replay: in checkpoints; without it a resumed run fills its replay anew
        learning_starts: rows in the replay before the first update
        random_steps: environment steps at the beginning that act at random
        learning_rate: step size of the optimizer
        gamma: discount of a step
        players: 2: they move by turns; observations and rewards are the mover's, who wins what the other loses
        num_simulations: simulations of each search
        temperature: chance in the choice of actions; 0: none
        sampled_actions: actions that a node samples of the policy; default: 16 of Box and MultiDiscrete, all of Discrete
        max_depth: of the search; default: no limit
        augmentation: of replayed images: shift by a few pixels, scale brightness by up to a tenth, or both; of boards and the moves on them: mirror, or all eight symmetries of a square
        unroll_steps: imagined steps that an update trains
        n_steps: real rewards in a value target
        correction_interval: age in steps that takes a step off a value target; default: none does
        fresh_bootstraps: value targets end in what the target network says now, not in what a search said then
        replay_ratio: updates per environment step
        reanalyse_fraction: replayed rows searched again, as a share of a batch
        priority_alpha: how much value errors decide what is replayed; 0: not at all
        priority_beta: how much importance weights make up for it
        target_update_interval: updates between copies to the target network
        value_coef: weight of the value error
        max_grad_norm: bound on the norm of the gradient
        adam_eps: added to the optimizer's denominator
        hidden_sizes: of the representation of vectors
        cnn: convolutional network for images
        image_layout: which axis of images has the channels; auto: the one that differs from the other two, or the shorter end
        torso: network that reads observations: a name (mlp, layer_norm_mlp, nature_cnn, impala_cnn, shallow_cnn, grid_cnn), module:Class, in Python also a class or a callable, or one of these for each key of a Dict; default: the space decides
        torso_kwargs: passed to the torso behind the space; for each key where the torsos are
        latent: form of latent states: a vector, or planes between residual towers; auto: planes for images and boards, unless a cnn or a torso is named
        latent_size: width of a latent vector (default 64), or channels of latent planes (16)
        residual_blocks: of each tower of latent planes
        hidden_size: of dynamics and prediction
        normalize_obs: bring observations to mean 0 and deviation 1, by running statistics
        support_size: bins on each side of 0; a return of 500 is about 22
        root_dirichlet_alpha: how even the noise at the root is
        root_exploration_fraction: share of noise in the priors at the root
        pb_c_init: weight of the prior in PUCT
        pb_c_base: visits at which that weight begins to grow
        first_play: value of an unvisited action: the mean of what its node knows, or the worst (mctx)
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env: EnvSource | None = None,
        *,
        rollout_steps: int = 8,
        batch_size: int = 256,
        replay_capacity: int = 100000,
        store_replay: bool = True,
        learning_starts: int = 1000,
        random_steps: int = 0,
        learning_rate: float = 0.001,
        learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        learning_rate_warmup_steps: int = ...,
        gamma: float = 0.997,
        players: Literal[1, 2] = 1,
        num_simulations: int = 25,
        num_simulations_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        num_simulations_warmup_steps: int = ...,
        temperature: float = 1.0,
        temperature_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        temperature_warmup_steps: int = ...,
        sampled_actions: int | None = None,
        max_depth: int | None = None,
        augmentation: Literal['none', 'shift', 'intensity', 'shift_intensity', 'mirror', 'square'] = 'none',
        unroll_steps: int = 5,
        n_steps: int = 5,
        correction_interval: int | None = None,
        fresh_bootstraps: bool = False,
        replay_ratio: float = 0.1,
        replay_ratio_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        replay_ratio_warmup_steps: int = ...,
        reanalyse_fraction: float = 0.0,
        reanalyse_fraction_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        reanalyse_fraction_warmup_steps: int = ...,
        priority_alpha: float = 0.6,
        priority_beta: float = 0.4,
        target_update_interval: int = 100,
        value_coef: float = 0.25,
        max_grad_norm: float = 5.0,
        adam_eps: float = 1e-05,
        hidden_sizes: tuple[int, ...] = (128,),
        cnn: Literal['nature', 'impala', 'shallow'] = 'nature',
        image_layout: Literal['auto', 'channels_first', 'channels_last'] = 'auto',
        torso: Any = None,
        torso_kwargs: dict[str, Any] = {},
        latent: Literal['auto', 'vector', 'planes'] = 'auto',
        latent_size: int | None = None,
        residual_blocks: int = 1,
        hidden_size: int = 128,
        normalize_obs: bool = True,
        support_size: int = 25,
        root_dirichlet_alpha: float = 0.3,
        root_exploration_fraction: float = 0.25,
        root_exploration_fraction_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        root_exploration_fraction_warmup_steps: int = ...,
        pb_c_init: float = 1.25,
        pb_c_base: float = 19652.0,
        first_play: Literal['mean', 'worst'] = 'mean',
        **run: Unpack[RunKeys],
    ) -> None: ...

class GumbelMuZero(Agent):
    """Gumbel MuZero (ICLR 2022, 2022).

    Args:
        env: an id, module:factory, or something that makes or is an environment
        rollout_steps: rows of every environment in a rollout
        batch_size: rows or windows in an update
        replay_capacity: rows that are kept
        store_replay: in checkpoints; without it a resumed run fills its replay anew
        learning_starts: rows in the replay before the first update
        random_steps: environment steps at the beginning that act at random
        learning_rate: step size of the optimizer
        gamma: discount of a step
        players: 2: they move by turns; observations and rewards are the mover's, who wins what the other loses
        num_simulations: simulations of each search
        temperature: chance in the choice of actions; 0: none
        sampled_actions: actions that a node samples of the policy; default: 16 of Box and MultiDiscrete, all of Discrete
        max_depth: of the search; default: no limit
        augmentation: of replayed images: shift by a few pixels, scale brightness by up to a tenth, or both; of boards and the moves on them: mirror, or all eight symmetries of a square
        unroll_steps: imagined steps that an update trains
        n_steps: real rewards in a value target
        correction_interval: age in steps that takes a step off a value target; default: none does
        fresh_bootstraps: value targets end in what the target network says now, not in what a search said then
        replay_ratio: updates per environment step
        reanalyse_fraction: replayed rows searched again, as a share of a batch
        priority_alpha: how much value errors decide what is replayed; 0: not at all
        priority_beta: how much importance weights make up for it
        target_update_interval: updates between copies to the target network
        value_coef: weight of the value error
        max_grad_norm: bound on the norm of the gradient
        adam_eps: added to the optimizer's denominator
        hidden_sizes: of the representation of vectors
        cnn: convolutional network for images
        image_layout: which axis of images has the channels; auto: the one that differs from the other two, or the shorter end
        torso: network that reads observations: a name (mlp, layer_norm_mlp, nature_cnn, impala_cnn, shallow_cnn, grid_cnn), module:Class, in Python also a class or a callable, or one of these for each key of a Dict; default: the space decides
        torso_kwargs: passed to the torso behind the space; for each key where the torsos are
        latent: form of latent states: a vector, or planes between residual towers; auto: planes for images and boards, unless a cnn or a torso is named
        latent_size: width of a latent vector (default 64), or channels of latent planes (16)
        residual_blocks: of each tower of latent planes
        hidden_size: of dynamics and prediction
        normalize_obs: bring observations to mean 0 and deviation 1, by running statistics
        support_size: bins on each side of 0; a return of 500 is about 22
        max_considered_actions: actions that the root's search begins with
        c_visit: visits added to the most visited action's in the scale of q-values
        c_scale: weight of q-values against the policy's logits
        noise_persistence: chance that an environment keeps its Gumbel noise for another step: what is tried is tried for a while
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env: EnvSource | None = None,
        *,
        rollout_steps: int = 8,
        batch_size: int = 256,
        replay_capacity: int = 100000,
        store_replay: bool = True,
        learning_starts: int = 1000,
        random_steps: int = 0,
        learning_rate: float = 0.001,
        learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        learning_rate_warmup_steps: int = ...,
        gamma: float = 0.997,
        players: Literal[1, 2] = 1,
        num_simulations: int = 16,
        num_simulations_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        num_simulations_warmup_steps: int = ...,
        temperature: float = 1.0,
        temperature_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        temperature_warmup_steps: int = ...,
        sampled_actions: int | None = None,
        max_depth: int | None = None,
        augmentation: Literal['none', 'shift', 'intensity', 'shift_intensity', 'mirror', 'square'] = 'none',
        unroll_steps: int = 5,
        n_steps: int = 5,
        correction_interval: int | None = None,
        fresh_bootstraps: bool = False,
        replay_ratio: float = 0.1,
        replay_ratio_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        replay_ratio_warmup_steps: int = ...,
        reanalyse_fraction: float = 0.0,
        reanalyse_fraction_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        reanalyse_fraction_warmup_steps: int = ...,
        priority_alpha: float = 0.6,
        priority_beta: float = 0.4,
        target_update_interval: int = 100,
        value_coef: float = 0.25,
        max_grad_norm: float = 5.0,
        adam_eps: float = 1e-05,
        hidden_sizes: tuple[int, ...] = (128,),
        cnn: Literal['nature', 'impala', 'shallow'] = 'nature',
        image_layout: Literal['auto', 'channels_first', 'channels_last'] = 'auto',
        torso: Any = None,
        torso_kwargs: dict[str, Any] = {},
        latent: Literal['auto', 'vector', 'planes'] = 'auto',
        latent_size: int | None = None,
        residual_blocks: int = 1,
        hidden_size: int = 128,
        normalize_obs: bool = True,
        support_size: int = 25,
        max_considered_actions: int = 16,
        c_visit: float = 50.0,
        c_scale: float = 0.1,
        noise_persistence: float = 0.0,
        **run: Unpack[RunKeys],
    ) -> None: ...

class EfficientZero(Agent):
    """EfficientZero (arXiv:2111.00210, 2021).

    Args:
        env: an id, module:factory, or something that makes or is an environment
        rollout_steps: rows of every environment in a rollout
        batch_size: rows or windows in an update
        replay_capacity: rows that are kept
        store_replay: in checkpoints; without it a resumed run fills its replay anew
        learning_starts: rows in the replay before the first update
        random_steps: environment steps at the beginning that act at random
        learning_rate: step size of the optimizer
        gamma: discount of a step
        players: 2: they move by turns; observations and rewards are the mover's, who wins what the other loses
        num_simulations: simulations of each search
        temperature: chance in the choice of actions; 0: none
        sampled_actions: actions that a node samples of the policy; default: 16 of Box and MultiDiscrete, all of Discrete
        max_depth: of the search; default: no limit
        augmentation: of replayed images: shift by a few pixels, scale brightness by up to a tenth, or both; of boards and the moves on them: mirror, or all eight symmetries of a square
        unroll_steps: imagined steps that an update trains
        n_steps: real rewards in a value target
        correction_interval: age in steps that takes a step off a value target; default: none does
        fresh_bootstraps: value targets end in what the target network says now, not in what a search said then
        replay_ratio: updates per environment step
        reanalyse_fraction: replayed rows searched again, as a share of a batch
        priority_alpha: how much value errors decide what is replayed; 0: not at all
        priority_beta: how much importance weights make up for it
        target_update_interval: updates between copies to the target network
        value_coef: weight of the value error
        max_grad_norm: bound on the norm of the gradient
        adam_eps: added to the optimizer's denominator
        hidden_sizes: of the representation of vectors
        cnn: convolutional network for images
        image_layout: which axis of images has the channels; auto: the one that differs from the other two, or the shorter end
        torso: network that reads observations: a name (mlp, layer_norm_mlp, nature_cnn, impala_cnn, shallow_cnn, grid_cnn), module:Class, in Python also a class or a callable, or one of these for each key of a Dict; default: the space decides
        torso_kwargs: passed to the torso behind the space; for each key where the torsos are
        latent: form of latent states: a vector, or planes between residual towers; auto: planes for images and boards, unless a cnn or a torso is named
        latent_size: width of a latent vector (default 64), or channels of latent planes (16)
        residual_blocks: of each tower of latent planes
        hidden_size: of dynamics and prediction
        normalize_obs: bring observations to mean 0 and deviation 1, by running statistics
        support_size: bins on each side of 0; a return of 500 is about 22
        max_considered_actions: actions that the root's search begins with
        c_visit: visits added to the most visited action's in the scale of q-values
        c_scale: weight of q-values against the policy's logits
        noise_persistence: chance that an environment keeps its Gumbel noise for another step: what is tried is tried for a while
        root_dirichlet_alpha: how even the noise at the root is
        root_exploration_fraction: share of noise in the priors at the root
        pb_c_init: weight of the prior in PUCT
        pb_c_base: visits at which that weight begins to grow
        first_play: value of an unvisited action: the mean of what its node knows, or the worst (mctx)
        search_rule: of the first version of EfficientZero, or V2's
        consistency_coef: weight of the consistency of imagined with observed states
        projection_size: of the consistency heads
        lstm_size: of the value prefix
        lstm_horizon: steps after which the value prefix begins anew
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env: EnvSource | None = None,
        *,
        rollout_steps: int = 8,
        batch_size: int = 256,
        replay_capacity: int = 100000,
        store_replay: bool = True,
        learning_starts: int = 1000,
        random_steps: int = 0,
        learning_rate: float = 0.001,
        learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        learning_rate_warmup_steps: int = ...,
        gamma: float = 0.997,
        players: Literal[1, 2] = 1,
        num_simulations: int = 25,
        num_simulations_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        num_simulations_warmup_steps: int = ...,
        temperature: float = 1.0,
        temperature_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        temperature_warmup_steps: int = ...,
        sampled_actions: int | None = None,
        max_depth: int | None = None,
        augmentation: Literal['none', 'shift', 'intensity', 'shift_intensity', 'mirror', 'square'] = 'none',
        unroll_steps: int = 5,
        n_steps: int = 5,
        correction_interval: int | None = 10000,
        fresh_bootstraps: bool = False,
        replay_ratio: float = 0.1,
        replay_ratio_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        replay_ratio_warmup_steps: int = ...,
        reanalyse_fraction: float = 1.0,
        reanalyse_fraction_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        reanalyse_fraction_warmup_steps: int = ...,
        priority_alpha: float = 0.6,
        priority_beta: float = 0.4,
        target_update_interval: int = 100,
        value_coef: float = 0.25,
        max_grad_norm: float = 5.0,
        adam_eps: float = 1e-05,
        hidden_sizes: tuple[int, ...] = (128,),
        cnn: Literal['nature', 'impala', 'shallow'] = 'nature',
        image_layout: Literal['auto', 'channels_first', 'channels_last'] = 'auto',
        torso: Any = None,
        torso_kwargs: dict[str, Any] = {},
        latent: Literal['auto', 'vector', 'planes'] = 'auto',
        latent_size: int | None = None,
        residual_blocks: int = 1,
        hidden_size: int = 128,
        normalize_obs: bool = True,
        support_size: int = 25,
        max_considered_actions: int = 16,
        c_visit: float = 50.0,
        c_scale: float = 0.1,
        noise_persistence: float = 0.0,
        root_dirichlet_alpha: float = 0.3,
        root_exploration_fraction: float = 0.25,
        root_exploration_fraction_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        root_exploration_fraction_warmup_steps: int = ...,
        pb_c_init: float = 1.25,
        pb_c_base: float = 19652.0,
        first_play: Literal['mean', 'worst'] = 'mean',
        search_rule: Literal['puct', 'gumbel'] = 'puct',
        consistency_coef: float = 2.0,
        projection_size: int = 128,
        lstm_size: int = 64,
        lstm_horizon: int = 5,
        **run: Unpack[RunKeys],
    ) -> None: ...

class ScaleZero(Agent):
    """ScaleZero (arXiv:2509.07945, 2025).

    Args:
        env: an id, module:factory, or something that makes or is an environment
        rollout_steps: rows of every environment in a rollout
        batch_size: rows or windows in an update
        replay_capacity: rows that are kept
        store_replay: in checkpoints; without it a resumed run fills its replay anew
        learning_starts: rows in the replay before the first update
        random_steps: environment steps at the beginning that act at random
        learning_rate: step size of the optimizer
        gamma: discount of a step
        players: 2: they move by turns; observations and rewards are the mover's, who wins what the other loses
        num_simulations: simulations of each search
        temperature: chance in the choice of actions; 0: none
        sampled_actions: actions that a node samples of the policy; default: 16 of Box and MultiDiscrete, all of Discrete
        max_depth: of the search; default: no limit
        augmentation: of replayed images: shift by a few pixels, scale brightness by up to a tenth, or both; of boards and the moves on them: mirror, or all eight symmetries of a square
        unroll_steps: imagined steps that an update trains
        n_steps: real rewards in a value target
        correction_interval: age in steps that takes a step off a value target; default: none does
        fresh_bootstraps: value targets end in what the target network says now, not in what a search said then
        replay_ratio: updates per environment step
        reanalyse_fraction: replayed rows searched again, as a share of a batch
        priority_alpha: how much value errors decide what is replayed; 0: not at all
        priority_beta: how much importance weights make up for it
        target_update_interval: updates between copies to the target network
        value_coef: weight of the value error
        max_grad_norm: bound on the norm of the gradient
        adam_eps: added to the optimizer's denominator
        hidden_sizes: of the representation of vectors
        cnn: convolutional network for images
        image_layout: which axis of images has the channels; auto: the one that differs from the other two, or the shorter end
        torso: network that reads observations: a name (mlp, layer_norm_mlp, nature_cnn, impala_cnn, shallow_cnn, grid_cnn), module:Class, in Python also a class or a callable, or one of these for each key of a Dict; default: the space decides
        torso_kwargs: passed to the torso behind the space; for each key where the torsos are
        latent: form of latent states: a vector, or planes between residual towers; auto: planes for images and boards, unless a cnn or a torso is named
        latent_size: width of the transformer
        residual_blocks: of each tower of latent planes
        hidden_size: of an expert
        normalize_obs: bring observations to mean 0 and deviation 1, by running statistics
        support_size: bins on each side of 0; a return of 500 is about 22
        max_considered_actions: actions that the root's search begins with
        c_visit: visits added to the most visited action's in the scale of q-values
        c_scale: weight of q-values against the policy's logits
        noise_persistence: chance that an environment keeps its Gumbel noise for another step: what is tried is tried for a while
        num_layers: of the transformer
        num_heads: of attention
        num_experts: of each mixture
        experts_per_token: besides the one that all tokens share
        context_steps: past observations and actions of the episode that a search begins with
        latent_coef: weight of the error of imagined latents
        balance_coef: weight of using all experts alike
        adapter_stages: stages of low-rank changes to a frozen transformer
        adapter_rank: of a low-rank change
        stage_updates: updates after which the next stage begins at the latest
        target_returns: mean return of 20 training episodes at which a task is solved: one for all, or one by task; default: no task ever is
        solved_share: windows of a solved task for one of an unsolved task
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env: EnvSource | None = None,
        *,
        rollout_steps: int = 8,
        batch_size: int = 256,
        replay_capacity: int = 100000,
        store_replay: bool = True,
        learning_starts: int = 1000,
        random_steps: int = 0,
        learning_rate: float = 0.001,
        learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        learning_rate_warmup_steps: int = ...,
        gamma: float = 0.997,
        players: Literal[1, 2] = 1,
        num_simulations: int = 8,
        num_simulations_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        num_simulations_warmup_steps: int = ...,
        temperature: float = 1.0,
        temperature_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        temperature_warmup_steps: int = ...,
        sampled_actions: int | None = None,
        max_depth: int | None = None,
        augmentation: Literal['none', 'shift', 'intensity', 'shift_intensity', 'mirror', 'square'] = 'none',
        unroll_steps: int = 5,
        n_steps: int = 5,
        correction_interval: int | None = None,
        fresh_bootstraps: bool = True,
        replay_ratio: float = 0.1,
        replay_ratio_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        replay_ratio_warmup_steps: int = ...,
        reanalyse_fraction: float = 0.0,
        reanalyse_fraction_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        reanalyse_fraction_warmup_steps: int = ...,
        priority_alpha: float = 0.6,
        priority_beta: float = 0.4,
        target_update_interval: int = 100,
        value_coef: float = 0.25,
        max_grad_norm: float = 5.0,
        adam_eps: float = 1e-05,
        hidden_sizes: tuple[int, ...] = (128,),
        cnn: Literal['nature', 'impala', 'shallow'] = 'nature',
        image_layout: Literal['auto', 'channels_first', 'channels_last'] = 'auto',
        torso: Any = None,
        torso_kwargs: dict[str, Any] = {},
        latent: Literal['auto', 'vector', 'planes'] = 'auto',
        latent_size: int = 64,
        residual_blocks: int = 1,
        hidden_size: int = 128,
        normalize_obs: bool = True,
        support_size: int = 25,
        max_considered_actions: int = 16,
        c_visit: float = 50.0,
        c_scale: float = 0.1,
        noise_persistence: float = 0.0,
        num_layers: int = 2,
        num_heads: int = 2,
        num_experts: int = 4,
        experts_per_token: int = 1,
        context_steps: int = 0,
        latent_coef: float = 10.0,
        balance_coef: float = 0.01,
        adapter_stages: int = 0,
        adapter_rank: int = 8,
        stage_updates: int = 5000,
        target_returns: float | dict[str, float] | None = None,
        solved_share: float = 0.25,
        **run: Unpack[RunKeys],
    ) -> None: ...

class DQN(Agent):
    """Deep Q-Network (arXiv:1312.5602, 2013).

    Args:
        env: an id, module:factory, or something that makes or is an environment
        rollout_steps: rows of every environment in a rollout
        batch_size: rows or windows in an update
        replay_capacity: rows that are kept
        store_replay: in checkpoints; without it a resumed run fills its replay anew
        learning_starts: rows in the replay before the first update
        random_steps: environment steps at the beginning that act at random
        learning_rate: step size of the optimizer
        gamma: discount of a step
        n_steps: real rewards in a target
        replay_ratio: updates per environment step
        tau: share of the way that the target network goes in a step
        target_update_interval: updates between two steps of the target network
        priority_alpha: how much errors decide what is replayed; default: all rows alike
        priority_beta: how much importance weights make up for it
        her_ratio: share of replayed transitions with a goal that their episode reached later (HER)
        adam_eps: added to the optimizer's denominator
        hidden_sizes: widths of the hidden layers
        activation: between the layers of an MLP
        cnn: convolutional network for images
        image_layout: which axis of images has the channels; auto: the one that differs from the other two, or the shorter end
        precision: of the CNN for images and grids, whose weights stay float32: bfloat16 is quicker where the processor has it, and coarser; auto: where it has it
        torso: network that reads observations: a name (mlp, layer_norm_mlp, nature_cnn, impala_cnn, shallow_cnn, grid_cnn), module:Class, in Python also a class or a callable, or one of these for each key of a Dict; default: the space decides
        torso_kwargs: passed to the torso behind the space; for each key where the torsos are
        epsilon: chance of an action at random
        epsilon_persistence: chance that an action at random is taken for another step, whatever epsilon is
        max_grad_norm: bound on the norm of the gradient
        double: the network chooses the next action, its target network values it
        dueling: the value of the state and the advantages of actions apart
        noisy: noise on the weights of the last layers explores (with epsilon 0 alone)
        distribution: of returns, learned in place of their mean: C51's or QR-DQN's
        num_atoms: fixed returns of a categorical distribution, or quantiles
        v_min: lowest return of a categorical distribution
        v_max: highest return of a categorical distribution
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env: EnvSource | None = None,
        *,
        rollout_steps: int = 4,
        batch_size: int = 64,
        replay_capacity: int = 100000,
        store_replay: bool = True,
        learning_starts: int = 1000,
        random_steps: int = 0,
        learning_rate: float = 0.001,
        learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        learning_rate_warmup_steps: int = ...,
        gamma: float = 0.99,
        gamma_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gamma_warmup_steps: int = ...,
        n_steps: int = 1,
        replay_ratio: float = 0.25,
        replay_ratio_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        replay_ratio_warmup_steps: int = ...,
        tau: float = 1.0,
        tau_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        tau_warmup_steps: int = ...,
        target_update_interval: int = 250,
        priority_alpha: float | None = None,
        priority_beta: float = 0.4,
        priority_beta_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        priority_beta_warmup_steps: int = ...,
        her_ratio: float = 0.0,
        her_ratio_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        her_ratio_warmup_steps: int = ...,
        adam_eps: float = 1e-08,
        hidden_sizes: tuple[int, ...] = (64, 64),
        activation: Literal['tanh', 'relu', 'silu', 'elu'] = 'relu',
        cnn: Literal['nature', 'impala', 'shallow'] = 'nature',
        image_layout: Literal['auto', 'channels_first', 'channels_last'] = 'auto',
        precision: Literal['float32', 'bfloat16', 'auto'] = 'float32',
        torso: Any = None,
        torso_kwargs: dict[str, Any] = {},
        epsilon: float = 0.1,
        epsilon_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        epsilon_warmup_steps: int = ...,
        epsilon_persistence: float = 0.0,
        max_grad_norm: float = 10.0,
        max_grad_norm_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        max_grad_norm_warmup_steps: int = ...,
        double: bool = True,
        dueling: bool = False,
        noisy: bool = False,
        distribution: Literal['none', 'categorical', 'quantile'] = 'none',
        num_atoms: int = 51,
        v_min: float = -10.0,
        v_max: float = 10.0,
        **run: Unpack[RunKeys],
    ) -> None: ...

class SAC(Agent):
    """Soft Actor-Critic (arXiv:1812.05905, 2018).

    Args:
        env: an id, module:factory, or something that makes or is an environment
        rollout_steps: rows of every environment in a rollout
        batch_size: rows or windows in an update
        replay_capacity: rows that are kept
        store_replay: in checkpoints; without it a resumed run fills its replay anew
        learning_starts: rows in the replay before the first update
        random_steps: environment steps at the beginning that act at random
        learning_rate: step size of the optimizer
        gamma: discount of a step
        n_steps: real rewards in a target
        replay_ratio: updates per environment step
        tau: share of the way that the target network goes in a step
        target_update_interval: updates between two steps of the target network
        priority_alpha: how much errors decide what is replayed; default: all rows alike
        priority_beta: how much importance weights make up for it
        her_ratio: share of replayed transitions with a goal that their episode reached later (HER)
        adam_eps: added to the optimizer's denominator
        hidden_sizes: widths of the hidden layers
        activation: between the layers of an MLP
        cnn: convolutional network for images
        image_layout: which axis of images has the channels; auto: the one that differs from the other two, or the shorter end
        precision: of the CNN for images and grids and of the products between hidden layers, whose weights stay float32: bfloat16 is quicker where the processor has it, and coarser; auto: where it has it
        torso: network that reads observations: a name (mlp, layer_norm_mlp, nature_cnn, impala_cnn, shallow_cnn, grid_cnn), module:Class, in Python also a class or a callable, or one of these for each key of a Dict; default: the space decides
        torso_kwargs: passed to the torso behind the space; for each key where the torsos are
        noise_correlation: how much of its exploration noise a step keeps of the step before; 0: white noise
        num_critics: networks that value actions; the least of them counts
        policy_interval: updates of the critics for each of the policy
        num_quantiles: of each critic; 1: it learns the mean of the return alone
        dropped_quantiles: the highest of each critic that targets leave out, of all critics' together (TQC)
        layer_norm: in the critics
        dropout: share of the critics' hidden units that an update leaves out
        batch_renorm: critics normalise every layer by the batch, and need no target network (CrossQ)
        ent_coef: weight of the entropy; default, or auto: learned, so that it reaches target_entropy
        initial_ent_coef: where a learned ent_coef begins
        target_entropy: default: minus the number of action's coordinates, or half the highest of Discrete actions
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env: EnvSource | None = None,
        *,
        rollout_steps: int = 4,
        batch_size: int = 256,
        replay_capacity: int = 1000000,
        store_replay: bool = True,
        learning_starts: int = 1000,
        random_steps: int = 1000,
        learning_rate: float = 0.0003,
        learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        learning_rate_warmup_steps: int = ...,
        gamma: float = 0.99,
        gamma_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gamma_warmup_steps: int = ...,
        n_steps: int = 1,
        replay_ratio: float = 1.0,
        replay_ratio_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        replay_ratio_warmup_steps: int = ...,
        tau: float = 0.005,
        tau_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        tau_warmup_steps: int = ...,
        target_update_interval: int = 1,
        priority_alpha: float | None = None,
        priority_beta: float = 0.4,
        priority_beta_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        priority_beta_warmup_steps: int = ...,
        her_ratio: float = 0.0,
        her_ratio_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        her_ratio_warmup_steps: int = ...,
        adam_eps: float = 1e-08,
        hidden_sizes: tuple[int, ...] = (256, 256),
        activation: Literal['tanh', 'relu', 'silu', 'elu'] = 'relu',
        cnn: Literal['nature', 'impala', 'shallow'] = 'nature',
        image_layout: Literal['auto', 'channels_first', 'channels_last'] = 'auto',
        precision: Literal['float32', 'bfloat16', 'auto'] = 'float32',
        torso: Any = None,
        torso_kwargs: dict[str, Any] = {},
        noise_correlation: float = 0.0,
        num_critics: int = 2,
        policy_interval: int = 1,
        num_quantiles: int = 1,
        dropped_quantiles: int = 2,
        layer_norm: bool = False,
        dropout: float = 0.0,
        batch_renorm: bool = False,
        ent_coef: float | None = None,
        ent_coef_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        ent_coef_warmup_steps: int = ...,
        initial_ent_coef: float = 1.0,
        target_entropy: float | None = None,
        target_entropy_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        target_entropy_warmup_steps: int = ...,
        **run: Unpack[RunKeys],
    ) -> None: ...

class TD3(Agent):
    """Twin Delayed DDPG (arXiv:1802.09477, 2018).

    Args:
        env: an id, module:factory, or something that makes or is an environment
        rollout_steps: rows of every environment in a rollout
        batch_size: rows or windows in an update
        replay_capacity: rows that are kept
        store_replay: in checkpoints; without it a resumed run fills its replay anew
        learning_starts: rows in the replay before the first update
        random_steps: environment steps at the beginning that act at random
        learning_rate: step size of the optimizer
        gamma: discount of a step
        n_steps: real rewards in a target
        replay_ratio: updates per environment step
        tau: share of the way that the target network goes in a step
        target_update_interval: updates between two steps of the target network
        priority_alpha: how much errors decide what is replayed; default: all rows alike
        priority_beta: how much importance weights make up for it
        her_ratio: share of replayed transitions with a goal that their episode reached later (HER)
        adam_eps: added to the optimizer's denominator
        hidden_sizes: widths of the hidden layers
        activation: between the layers of an MLP
        cnn: convolutional network for images
        image_layout: which axis of images has the channels; auto: the one that differs from the other two, or the shorter end
        precision: of the CNN for images and grids and of the products between hidden layers, whose weights stay float32: bfloat16 is quicker where the processor has it, and coarser; auto: where it has it
        torso: network that reads observations: a name (mlp, layer_norm_mlp, nature_cnn, impala_cnn, shallow_cnn, grid_cnn), module:Class, in Python also a class or a callable, or one of these for each key of a Dict; default: the space decides
        torso_kwargs: passed to the torso behind the space; for each key where the torsos are
        noise_correlation: how much of its exploration noise a step keeps of the step before; 0: white noise
        num_critics: networks that value actions; the least of them counts
        policy_interval: updates of the critics for each of the policy
        num_quantiles: of each critic; 1: it learns the mean of the return alone
        dropped_quantiles: the highest of each critic that targets leave out, of all critics' together (TQC)
        layer_norm: in the critics
        dropout: share of the critics' hidden units that an update leaves out
        batch_renorm: critics normalise every layer by the batch, and need no target network (CrossQ)
        exploration_noise: deviation of the noise on actions, of half their range
        target_noise: deviation of the noise on the target policy's actions
        target_noise_clip: bound on that noise
    """

    algo: ClassVar[str]
    def __init__(
        self,
        env: EnvSource | None = None,
        *,
        rollout_steps: int = 4,
        batch_size: int = 256,
        replay_capacity: int = 1000000,
        store_replay: bool = True,
        learning_starts: int = 1000,
        random_steps: int = 1000,
        learning_rate: float = 0.001,
        learning_rate_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        learning_rate_warmup_steps: int = ...,
        gamma: float = 0.99,
        gamma_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        gamma_warmup_steps: int = ...,
        n_steps: int = 1,
        replay_ratio: float = 1.0,
        replay_ratio_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        replay_ratio_warmup_steps: int = ...,
        tau: float = 0.005,
        tau_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        tau_warmup_steps: int = ...,
        target_update_interval: int = 1,
        priority_alpha: float | None = None,
        priority_beta: float = 0.4,
        priority_beta_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        priority_beta_warmup_steps: int = ...,
        her_ratio: float = 0.0,
        her_ratio_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        her_ratio_warmup_steps: int = ...,
        adam_eps: float = 1e-08,
        hidden_sizes: tuple[int, ...] = (256, 256),
        activation: Literal['tanh', 'relu', 'silu', 'elu'] = 'relu',
        cnn: Literal['nature', 'impala', 'shallow'] = 'nature',
        image_layout: Literal['auto', 'channels_first', 'channels_last'] = 'auto',
        precision: Literal['float32', 'bfloat16', 'auto'] = 'float32',
        torso: Any = None,
        torso_kwargs: dict[str, Any] = {},
        noise_correlation: float = 0.0,
        num_critics: int = 2,
        policy_interval: int = 2,
        num_quantiles: int = 1,
        dropped_quantiles: int = 2,
        layer_norm: bool = False,
        dropout: float = 0.0,
        batch_renorm: bool = False,
        exploration_noise: float = 0.1,
        exploration_noise_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        exploration_noise_warmup_steps: int = ...,
        target_noise: float = 0.2,
        target_noise_schedule: float | str | Mapping[str, Any] | Callable[[float], float] = ...,
        target_noise_warmup_steps: int = ...,
        target_noise_clip: float = 0.5,
        **run: Unpack[RunKeys],
    ) -> None: ...

MANAGED: dict[str, type[Agent]]
def register(row: AlgorithmRow) -> type[Agent]: ...
def managed(class_name: str) -> type[Agent]: ...
