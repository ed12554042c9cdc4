"""A market for the fine-tuning of a language model: only the adapter is bought, and only the adapter travels.

    pip install 'databazaar[peft]'
    python examples/lora_market.py adapter

Four newsrooms sell updates of a LoRA adapter over a small BERT that is built from its configuration; in earnest it
would come from `AutoModelForSequenceClassification.from_pretrained`. Two of them label their texts with care, two toss
a coin. The trained adapter is saved for PEFT in the folder that is named, and put on the base model again from there.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from transformers import BertConfig, BertForSequenceClassification

from databazaar import Arbiter, Consumer, LocalSGD, Provider
from databazaar.learning.task import Cosine

WORDS, LENGTH, FIRST_TOPIC, TOPIC_WORDS = 200, 12, 2, 18
CAREFUL = {"courier": 0.0, "gazette": 0.0, "rumour": 0.5, "hearsay": 0.5}
"""The newsrooms, and how many of their labels are wrong."""

Texts = tuple[dict[str, NDArray[np.int64]], NDArray[np.int64]]


def base_model() -> Any:
    """A BERT of two layers. Without dropout, and with plain attention, torch computes many models side by side."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=32,
        num_labels=2,
        initializer_range=0.1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    )
    return BertForSequenceClassification(config)


def adapted() -> Any:
    """The base model with a LoRA adapter of rank 4: what PEFT leaves trainable is what travels."""
    lora = LoraConfig(task_type=TaskType.SEQ_CLS, r=4, lora_alpha=16, target_modules=["query", "value"])
    model = base_model()
    torch.manual_seed(1)
    return get_peft_model(model, lora)


def texts(rows: int, seed: int, wrong: float = 0.0) -> Texts:
    """Texts of two topics as tokens, shorter ones filled up with zeros; the label is the topic."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, 2, rows)
    ids = rng.integers(FIRST_TOPIC, WORDS, (rows, LENGTH))
    telling = rng.integers(FIRST_TOPIC, FIRST_TOPIC + TOPIC_WORDS, ids.shape) + TOPIC_WORDS * topic[:, None]
    ids = np.where(rng.random(ids.shape) < 0.5, telling, ids)
    ids[:, 0] = 1  # the first token stands for the whole text
    mask = (np.arange(LENGTH) < rng.integers(LENGTH // 2, LENGTH + 1, rows)[:, None]).astype(np.int64)
    labels = np.where(rng.random(rows) < wrong, 1 - topic, topic)
    return {"input_ids": ids * mask, "attention_mask": mask}, labels


def market(budget: int = 60, rows: int = 1000) -> Arbiter:
    """Named inputs are computed provider by provider, so the engine is the loop. The step falls over the rounds, of
    which the budget pays for 20 if every access is bought."""
    consumer = Consumer(adapted(), holdout=texts(300, 99), budget=budget, per_round=3)
    oracle = LocalSGD(step=Cosine(0.01, rounds=20), batch_size=32, steps=8, optimizer="adam")
    providers = [Provider(name, texts(rows, seed, wrong), oracle) for seed, (name, wrong) in enumerate(CAREFUL.items())]
    return Arbiter(consumer, providers, engine="loop", seed=3)


def answers(model: Any, rows: Texts) -> NDArray[np.int64]:
    """The class that a model says for each text."""
    with torch.no_grad():
        outputs = model.eval()(**{name: torch.from_numpy(part) for name, part in rows[0].items()})
    found: NDArray[np.int64] = outputs.logits.argmax(1).numpy()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapter", nargs="?", type=Path, help="where to save the adapter; for now alone without it")
    given = parser.parse_args().adapter
    torch.set_num_threads(1)  # a model this small is slower on several
    arbiter = market()
    print(arbiter.consumer)
    report = arbiter.run()
    print(report)
    with tempfile.TemporaryDirectory() as aside:
        folder = given or Path(aside)
        arbiter.model.save_pretrained(folder)
        again = PeftModel.from_pretrained(base_model(), folder)
        test = texts(500, 1000)
        before, after = ((answers(model, test) == test[1]).mean() for model in (base_model(), again))
        print(f"right on 500 new texts: the base model {before:.1%}, and with the adapter from the folder {after:.1%}")
        assert (answers(again, test) == answers(arbiter.model, test)).all()


if __name__ == "__main__":
    main()
