"""Made by `python docs/build.py`; do not edit."""

from rl_training.api.algorithms import (A2C as A2C, APPO as APPO, DQN as DQN, Dreamer as Dreamer, EfficientZero as EfficientZero, GAIL as GAIL, GumbelMuZero as GumbelMuZero, IMPALA as IMPALA, MuZero as MuZero, PPG as PPG, PPO as PPO, RecurrentPPO as RecurrentPPO, SAC as SAC, ScaleZero as ScaleZero, TD3 as TD3, TRPO as TRPO)
from rl_training.api.functions import (evaluate as evaluate, make_config as make_config, train as train)
from rl_training.experiment.config import (TrainConfig as TrainConfig)
from rl_training.experiment.registry import (AlgorithmRow as AlgorithmRow)
from rl_training.runtime.callbacks import (Callback as Callback)
from rl_training.runtime.manager import (list_runs as list_runs, resume_run as resume_run, train_run as train_run)
from rl_training.runtime.workflows import (TrainResult as TrainResult, evaluate_checkpoint as evaluate_checkpoint)
from rl_training.tools.compare import (compare_runs as compare_runs)
from rl_training.tools.report import (write_report as write_report)
from rl_training.tools.tune import (tune as tune)

__version__: str
_LAZY: dict[str, str]
