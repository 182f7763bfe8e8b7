"""
A model trained by Lightning: no need to take it apart
=======================================================

Whoever trains with Lightning has a `LightningModule` and a `Trainer`, and no wish to take them
apart. `refit` needs neither the loss nor the data: only a function that trains with a bonus added
to the objective. A Hugging Face `Trainer` works the same way: add the bonus in `compute_loss`.

``pip install "implicit-delta[torch,plot]" lightning``.
"""

import copy
import logging
import os
import warnings

import lightning
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import implicit_delta as idm

torch.set_num_threads(1)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")

torch.manual_seed(0)
n = 1000
X = torch.randn(n, 3)
y = torch.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.3 * torch.randn(n)
X_new = torch.randn(100, 3)
NOISE, L2 = 0.09, 1.0
EPOCHS = int(os.environ.get("EPOCHS", 200))

# %%
# The module as it was, with the bonus in its training step. The squared error is a log-likelihood
# when it is divided by twice the noise variance; the bonus and the penalty belong to the *sum* over
# all n rows, so both are divided by n where the loss is a mean.


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 12), nn.Tanh(), nn.Linear(12, 1))
        self.bonus = None

    def forward(self, x):
        return self.net(x).squeeze(1)

    def training_step(self, batch, _):
        x, target = batch
        loss = F.mse_loss(self(x), target) / (2 * NOISE)
        penalty = L2 / 2 * sum(p.square().sum() for p in self.parameters())
        bonus = 0.0 if self.bonus is None else self.bonus(self)
        return loss + (penalty - bonus) / n

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.02)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.max_epochs)
        return [optimizer], [schedule]


def train(bonus, start, epochs):
    lightning.seed_everything(1, verbose=False)
    model = copy.deepcopy(start)
    model.bonus = bonus
    trainer = lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, DataLoader(TensorDataset(X, y), batch_size=250, shuffle=True))
    model.bonus = None
    return model


good = train(None, Regression(), epochs=EPOCHS + EPOCHS // 2)

# %%
# Psi: the average prediction for new inputs, and its error bar from five training runs that start
# at the good fit. They must be long enough for psi to respond: what a run leaves out is missing
# from the variance.


def average_prediction(model):
    return model(X_new).mean()


by_refits = idm.refit(lambda bonus: train(bonus, good, epochs=EPOCHS), average_prediction)
print(by_refits)
print(by_refits.diagnostics.notes)

# %%
# A LightningModule is a module, so `from_torch` takes it as it is: for comparison.

fitted = idm.polish(idm.from_torch(good, (X, y), idm.Gaussian(NOISE), l2=L2, dtype=torch.float64))
solved = idm.infer(fitted, lambda model: model(X_new.double()).mean())
print(solved)
print(f"ratio of the standard errors: {by_refits.standard_error / solved.standard_error:.2f}")

# %%
# The picture: both answers.

fig, ax = plt.subplots(figsize=(7, 1.8), layout="constrained")
for row, estimate in enumerate([by_refits, solved]):
    low, high = estimate.confidence_interval()
    ax.plot([low, high], [row, row], lw=3, solid_capstyle="butt")
    ax.plot(estimate.value, row, "ko")
ax.set_yticks([0, 1], ["five training runs", "one linear solve"])
ax.set(ylim=(-0.6, 1.6), xlabel="average prediction, 95 % interval")
plt.show()
