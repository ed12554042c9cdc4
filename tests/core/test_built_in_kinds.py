"""The built-in models and oracles: every kind that is listed can be built, with the sizes that are said of it."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar import BazaarError, LocalSGD, build_model
from databazaar.learning.oracles import FullGradient, StochasticGradient, build_oracle
from databazaar.models import MODEL_KINDS, parameter_count
from databazaar.oracles import OracleKind


@given(
    st.sampled_from(MODEL_KINDS),
    st.tuples(st.integers(1, 3), st.integers(6, 13), st.integers(6, 13)),
    st.integers(1, 5),
    st.lists(st.integers(1, 6), max_size=3),
)
def test_the_parameters_of_a_model_are_counted_without_making_it(
    kind: str, inputs: tuple[int, int, int], outputs: int, hidden: list[int]
) -> None:
    model = build_model(kind, inputs, outputs, hidden=hidden)
    assert parameter_count(kind, inputs, outputs, hidden) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("kind", "inputs", "complaint"),
    [("rnn", [4], "unknown: use one of auto, cnn"), ("cnn", [784], "give the image's shape"), ("cnn", [1, 5, 9], "6")],
)
def test_what_cannot_be_built_cannot_be_counted_either(kind: str, inputs: list[int], complaint: str) -> None:
    for work in (parameter_count, build_model):
        with pytest.raises(BazaarError, match=complaint):
            work(kind, inputs, 2)


def test_every_oracle_is_built_with_the_settings_that_it_has_a_use_for() -> None:
    made = [build_oracle(kind, step=0.2, batch_size=5, epochs=3, momentum=0.4) for kind in get_args(OracleKind)]
    assert made == [FullGradient(), StochasticGradient(5), LocalSGD(0.2, 5, 3, 0.4)]


@pytest.mark.process
def test_the_kinds_are_known_without_torch() -> None:
    code = "import sys, databazaar.models; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
