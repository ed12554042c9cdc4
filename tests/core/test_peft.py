"""A LoRA fine-tuning job, by the example that users read: what travels, a resume, and the adapter back in PEFT.

The example is imported by the tests, as PEFT takes two seconds that every test process would pay.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from databazaar import Arbiter, Consumer, LocalSGD, Provider, load_run
from databazaar.engines import Ask, LoopEngine, VectorizedEngine
from databazaar.learning.losses import cross_entropy
from databazaar.learning.task import Task
from databazaar.runs.folder import RunFolder

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_figures_here")]
CPU = torch.device("cpu")
ORACLE = LocalSGD(0.1, 8, steps=3)


class StopError(Exception):
    pass


def stop(progress: Any) -> None:
    if progress.round == 2:
        raise StopError


def test_2178_numbers_travel_instead_of_88516_and_the_adapter_goes_back_to_peft(tmp_path: Path) -> None:
    from lora_market import adapted, answers, base_model, market, texts
    from peft import PeftModel

    arbiter = market(budget=9, rows=24)
    assert arbiter.parameters.numel() == 2_178
    assert sum(parameter.numel() for parameter in adapted().parameters()) == 88_516
    whole = arbiter.run()
    with pytest.raises(StopError):
        market(budget=9, rows=24).run(tmp_path / "run", tell=stop)
    resumed = market(budget=9, rows=24)
    report = resumed.run(tmp_path / "run")
    assert (report.model_hash, report.last_model_hash) == (whole.model_hash, whole.last_model_hash)
    assert [one.utility for one in report.rounds] == [one.utility for one in whole.rounds]
    kept = RunFolder.open_or_create(tmp_path / "run")
    assert kept.audit().ok
    kept.dispose()

    bought = load_run(tmp_path / "run", model=adapted())
    assert sum(array.size for array in bought.parameters.values()) == 2_178
    module: Any = bought.model
    module.save_pretrained(tmp_path / "adapter")
    again: Any = PeftModel.from_pretrained(base_model(), tmp_path / "adapter")
    inputs = {name: torch.from_numpy(part) for name, part in texts(20, 7)[0].items()}
    with torch.no_grad():
        logits = [one.eval()(**inputs).logits for one in (again, module, resumed.model, base_model())]
    assert torch.equal(logits[0], logits[1]) and torch.equal(logits[0], logits[2])
    assert not torch.allclose(logits[0], logits[3])
    assert answers(again, texts(20, 7)).tolist() == logits[1].argmax(1).tolist()


def test_a_stack_of_adapters_trains_as_one_after_the_other_does() -> None:
    """Tokens alone are one tensor, and transformers takes them first."""
    from lora_market import CAREFUL, adapted, texts

    task = Task(adapted(), cross_entropy)
    assert task.model is not None
    providers = [
        Provider(name, (texts(24, seed, wrong)[0]["input_ids"], texts(24, seed, wrong)[1]), ORACLE)
        for seed, (name, wrong) in enumerate(CAREFUL.items())
    ]
    ask = Ask(task.layout.flatten(task.model), [0, 2, 3], 1, 5)
    loop, stacked = (engine(task, providers, CPU).query(ask) for engine in (LoopEngine, VectorizedEngine))
    assert not loop.failures and (loop.updates != 0).any(1).all()
    torch.testing.assert_close(stacked.updates, loop.updates, rtol=1e-3, atol=1e-5)


def test_inputs_by_name_are_taken_one_provider_after_the_other() -> None:
    from lora_market import adapted, texts

    consumer = Consumer(adapted(), holdout=texts(20, 9), budget=2, per_round=1)
    with pytest.warns(UserWarning, match="falls back from vectorized to loop: provider courier's inputs have names"):
        arbiter = Arbiter(consumer, [Provider("courier", texts(20, 0), ORACLE)], device="cpu")
    assert isinstance(arbiter.engine, LoopEngine)
