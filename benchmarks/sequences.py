"""Tiny transformers: inference in units of their training.

Run ``python -m benchmarks sequences`` (needs transformers and peft; nothing is downloaded). BERT as
a classifier, GPT-2 as a language model and a LoRA of each are trained by 200 steps of Adam on
batches of 32 out of 400 padded sequences. Then the mean probability of the first class or word gets
its standard error, by default and by conjugate gradients with the Gauss-Newton matrix, for all
parameters, the head or the adapter. Times are those of the processor, over that of the training.
"""

import resource
import warnings
from collections.abc import Callable
from time import process_time
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

import implicit_delta as idm

ROWS, LENGTH, WORDS, WIDTH, STEPS, BATCH = 400, 16, 40, 24, 200, 32
Logits = Callable[[Any, Any], torch.Tensor]


def main() -> None:
    warnings.simplefilter("ignore")
    print("over the training            d  product  from_torch  default (passes)   solve (passes)")
    for name, make in {"BERT": bert, "GPT-2": gpt2}.items():
        net, logits, targets, heads, adapter = make()
        batch = data(targets)
        seconds = trained(net, batch, logits, targets)
        for label, part in {"all": None, **heads}.items():
            measure(f"{name}, {label}", net, batch, logits, targets, part, seconds)
        lora = get_peft_model(net, adapter)
        seconds = trained(lora, batch, logits, targets)
        measure(f"{name}, LoRA", lora, batch, logits, targets, None, seconds)


def bert() -> Any:
    """Classify sequences."""
    config = BertConfig(
        vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=2 * WIDTH, max_position_embeddings=LENGTH, num_labels=3,
    )  # fmt: skip
    logits = lambda m, b: m(b["input_ids"], attention_mask=b["attention_mask"]).logits
    adapter = LoraConfig(r=2, target_modules=["query", "value"])
    heads = {"head": "classifier", "pooler and head": ["*pooler*", "classifier"]}
    return BertForSequenceClassification(config), logits, lambda b: b["labels"], heads, adapter


def gpt2() -> Any:
    """Predict the next word."""
    config = GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=WIDTH, n_layer=2, n_head=2, bos_token_id=0,
        eos_token_id=0, tie_word_embeddings=False,
    )  # fmt: skip
    logits = lambda m, b: m(b["input_ids"], attention_mask=b["attention_mask"]).logits[:, :-1]
    adapter = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    heads = {"last norm": "transformer.ln_f", "head": "lm_head"}
    return GPT2LMHeadModel(config), logits, lambda b: b["words"][:, 1:], heads, adapter


def data(targets: Any) -> dict[str, torch.Tensor]:
    """Draw padded sequences, whose class and words are partly random."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, WORDS, (ROWS, LENGTH), generator=generator)
    ids[:, 1::2] = 1 + ids[:, ::2] * 3 % (WORDS - 1)
    labels = (ids[:, 0] + torch.randint(20, (ROWS,), generator=generator)) // 20
    ends = torch.randint(6, LENGTH + 1, (ROWS, 1), generator=generator)
    mask = (torch.arange(LENGTH) < ends).long()
    words = torch.where(mask > 0, ids, -100)
    return {"input_ids": ids * mask, "attention_mask": mask, "labels": labels, "words": words}


def trained(net: Any, batch: Any, logits: Logits, targets: Any) -> float:
    """Train, and return the seconds."""
    torch.manual_seed(0)
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=3e-3)
    started = process_time()
    for _ in range(STEPS):
        rows = torch.randint(ROWS, (BATCH,))
        some = {name: column[rows] for name, column in batch.items()}
        optimizer.zero_grad()
        F.cross_entropy(logits(net, some).movedim(-1, 1), targets(some)).backward()
        optimizer.step()
    net.eval()
    return process_time() - started


def measure(
    label: str, net: Any, batch: Any, logits: Logits, targets: Any, part: Any, unit: float
) -> None:
    """Print one line."""
    started = process_time()
    model = idm.from_torch(
        net, batch, idm.Categorical(ignore_index=-100), outputs=logits, targets=targets,
        parameters=part, l2=1.0,
    )  # fmt: skip
    built = process_time() - started
    kept = targets(batch) != -100
    psi = lambda m: logits(m, batch).softmax(-1)[..., 0][kept].mean()
    ways = {"default": None, "solve": idm.Infinitesimal(idm.conjugate_gradient, "ggn")}
    taken = " ".join(f"{cost(model, psi, method, unit):>16}" for method in ways.values())
    started = process_time()
    model.information(model.theta, model.theta, "ggn")
    product = process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    sizes = f"{label:22} {model.d:7,} {product / unit:8.3f} {built / unit:11.2f}"
    print(f"{sizes} {taken} {peak:4.1f} GB", flush=True)


def cost(model: Any, psi: Any, method: idm.Method | None, unit: float) -> str:
    """Time of an inference over that of the training, and passes over the data."""
    fresh, started = model.at(model.theta), process_time()
    before = fresh.passes
    idm.infer(fresh, psi, method, strict=False)
    return f"{(process_time() - started) / unit:.2f} ({fresh.passes - before})"


if __name__ == "__main__":
    main()
