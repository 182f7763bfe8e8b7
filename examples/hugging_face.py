"""
How sure is a fine-tuned classifier?
====================================

A BERT from Hugging Face's transformers, with batches that are dicts, padding and all. The
configuration is tiny and nothing is downloaded; a real model takes the same lines.

``pip install "implicit-delta[torch]" transformers``.
"""

# %%
# Sequences of tokens, padded to one length; the label depends on how often two kinds of them occur.

import copy

import torch
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification

import implicit_delta as idm

torch.manual_seed(0)


def sample(n, length=12):
    ids = torch.randint(1, 30, (n, length))
    mask = (torch.arange(length) < torch.randint(5, length + 1, (n, 1))).long()
    surplus = (mask * ((ids < 8).long() - (ids > 22).long())).sum(1)
    labels = (surplus + 2 * torch.randn(n) > 0).long()
    return {"input_ids": ids * mask, "attention_mask": mask, "labels": labels}


train, new = sample(400), sample(300)
config = BertConfig(
    vocab_size=30,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=12,
)
net = BertForSequenceClassification(config)

# %%
# Training as usual: minibatches, AdamW, dropout on. Two things are kept: the state before, and the
# last ones.

start, states = copy.deepcopy(net.state_dict()), []
optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
net.train()
for _ in range(150):
    rows = torch.randint(len(train["labels"]), (32,))
    optimizer.zero_grad()
    net(**{name: column[rows] for name, column in train.items()}).loss.backward()
    optimizer.step()
    states.append(copy.deepcopy(net.state_dict()))
net.eval()

# %%
# ``outputs=`` and ``targets=`` say where logits and labels come from, whatever a batch is.


def logits(net, batch):
    return net(batch["input_ids"], attention_mask=batch["attention_mask"]).logits


def fitted(**options):
    return idm.from_torch(
        net,
        train,
        idm.Categorical(),
        outputs=logits,
        targets=lambda batch: batch["labels"],
        start=start,
        **options,
    )


model = fitted(checkpoints=states[-100::5])  # every fifth step: neighbors are too much alike
model

# %%
# The loss on new sequences. The network is at no maximum, and is taken as it is: the summary says
# what the interval covers, and where the error comes from.


def loss(net):
    return F.cross_entropy(logits(net, new), new["labels"])


print(idm.infer(model, loss).summary())

# %%
# The last layer alone, with everything below it taken as known.

print(idm.infer(fitted(parameters="classifier"), loss))
