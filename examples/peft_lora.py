"""
How sure is a LoRA of a language model?
=======================================

PEFT adds low-rank adapters to a frozen GPT-2, and inference is about the adapters. Tokens are terms
of their sequence; padding and prompts are left out with ``ignore_index``. The configuration is tiny
and nothing is downloaded.

``pip install "implicit-delta[torch]" transformers peft``.
"""

# %%
# Sequences in which every other token follows from the one before, most of the time. A small model
# that knows one rule stands for the one that was downloaded; the adapters learn another rule.

import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

import implicit_delta as idm

torch.manual_seed(0)
WORDS, LENGTH = 20, 10


def sample(n, shift):
    ids = torch.randint(WORDS, (n, LENGTH))
    follows = torch.rand(n, LENGTH // 2) < 0.7
    ids[:, 1::2] = torch.where(follows, (ids[:, ::2] + shift) % WORDS, ids[:, 1::2])
    mask = (torch.arange(LENGTH) < torch.randint(5, LENGTH + 1, (n, 1))).long()
    labels = torch.where(mask > 0, ids, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def trained(net, data, rate, steps=200):
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=rate)
    for _ in range(steps):
        rows = torch.randint(len(data["labels"]), (32,))
        optimizer.zero_grad()
        net(**{name: column[rows] for name, column in data.items()}).loss.backward()
        optimizer.step()
    return net.eval()


config = GPT2Config(
    vocab_size=WORDS,
    n_positions=LENGTH,
    n_embd=16,
    n_layer=1,
    n_head=2,
    bos_token_id=0,
    eos_token_id=0,
    loss_type="ForCausalLM",
)
base = trained(GPT2LMHeadModel(config), sample(1000, shift=1), rate=1e-2)

# %%
# Only the adapters require a gradient, so they are what is trained, and theta.

adapter = LoraConfig(r=2, lora_alpha=8, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)
train, new = sample(200, shift=2), sample(100, shift=2)
net = trained(get_peft_model(base, adapter), train, rate=2e-2)

# %%
# The logits of a token predict the next one.


def logits(net, batch):
    return net(batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]


def targets(batch):
    return batch["labels"][:, 1:]


model = idm.from_torch(
    net, train, idm.Categorical(ignore_index=-100), outputs=logits, targets=targets
)
model

# %%
# Perplexity on new sequences. The training has stopped early, and is read as a ridge; a warning
# says that psi is still on its way. A rotation between the two factors of an adapter changes
# nothing: with the ridge this is no trouble.


def perplexity(net):
    return F.cross_entropy(logits(net, new).transpose(1, 2), targets(new)).exp()


print(idm.infer(model, perplexity).summary())
