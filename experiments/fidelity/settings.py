"""Table of settings: networks as people train them, fixed before any standard error was seen.

Each row crosses the factors below rather than varying one at a time, so that every level meets
several levels of every other factor:

============  ====================================================================================
activation    tanh, ReLU, GELU
network       one or two hidden layers, a convnet on 8 x 8 images, a transformer on 8 tokens
optimizer     Adam, AdamW, SGD with momentum 0.9
batch         minibatches, or the full batch (0)
epochs        2, 10, 50
weight decay  none; coupled (Adam, SGD); decoupled (AdamW)
outcome       regression, binary, 3 classes
n             300 to 1000; d from 65 to about 2500
============  ====================================================================================

Learning rates are those at which the training loss falls fast without leaping: looked up by the
loss, never by a standard error.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """One network, its training and its data."""

    name: str
    inputs: str
    outcome: str
    n: int
    hidden: tuple[int, ...]
    activation: str
    optimizer: str
    rate: float
    batch: int
    epochs: int
    decay: float = 0.0


def _table(rows):
    return tuple(Setting(*row) for row in rows)


SETTINGS = _table([
    ("one_tanh_adam_full", "table", "binary", 500, (8,), "tanh", "adam", 0.05, 0, 50),
    ("one_relu_sgd", "table", "classes", 600, (16,), "relu", "sgd", 0.05, 30, 10),
    ("one_gelu_adam_decay", "table", "regression", 400, (12,), "gelu", "adam", 0.02, 10, 2, 1e-2),
    ("one_relu_adamw", "table", "binary", 1000, (32,), "relu", "adamw", 0.01, 50, 50, 0.1),
    ("one_tanh_sgd_full", "table", "regression", 600, (24,), "tanh", "sgd", 0.1, 0, 50, 1e-3),
    ("one_gelu_sgd_full", "table", "classes", 800, (16,), "gelu", "sgd", 0.5, 0, 10),
    ("two_tanh_adam", "table", "classes", 600, (16, 16), "tanh", "adam", 0.01, 20, 2),
    ("two_relu_adam", "table", "regression", 800, (16, 16), "relu", "adam", 0.01, 40, 10),
    ("two_gelu_sgd_decay", "table", "binary", 500, (16, 8), "gelu", "sgd", 0.02, 25, 50, 1e-2),
    ("two_relu_adam_full", "table", "binary", 300, (24, 24), "relu", "adam", 0.03, 0, 10),
    ("two_tanh_sgd", "table", "regression", 1000, (12, 12), "tanh", "sgd", 0.03, 20, 2),
    ("two_gelu_adamw_full", "table", "classes", 600, (16, 16), "gelu", "adamw", 0.01, 0, 50, 0.1),
    ("conv_relu_adam", "images", "classes", 600, (6, 8), "relu", "adam", 0.01, 30, 10),
    ("conv_tanh_sgd_decay", "images", "binary", 400, (6, 8), "tanh", "sgd", 0.02, 40, 50, 1e-3),
    ("conv_gelu_adam_full", "images", "regression", 500, (6, 8), "gelu", "adam", 0.02, 0, 50),
    ("conv_relu_adamw", "images", "binary", 800, (8, 8), "relu", "adamw", 0.01, 20, 2, 0.1),
    ("transformer_gelu_adam", "tokens", "binary", 600, (16, 16), "gelu", "adam", 0.005, 30, 10),
    ("transformer_relu_adamw", "tokens", "classes", 1000, (16, 16), "relu", "adamw",
     0.002, 100, 50, 0.1),
    ("transformer_tanh_sgd", "tokens", "regression", 800, (16, 16), "tanh", "sgd", 0.01, 40, 10),
    ("transformer_gelu_adam_decay", "tokens", "classes", 600, (16, 16), "gelu", "adam",
     0.005, 20, 2, 1e-3),
])  # fmt: skip
