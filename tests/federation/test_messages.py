"""The one decoder: what is written is read, and nothing else is, at any price."""

from __future__ import annotations

import random
import re
import resource
import struct
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load

from databazaar.data.schema_message import SchemaMessage
from databazaar.federation import messages
from databazaar.federation.messages import (
    MAX_HEADER,
    ModelMessage,
    OracleMessage,
    Request,
    TaskMessage,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from databazaar.federation.transport import Fault, MessageError
from mutations import mutants
from sample_messages import PARAMS, a_reply, a_request, a_table


def test_a_header_that_nobody_would_read_is_not_sent() -> None:
    """The largest schema that is allowed at all, with long names."""
    categories = [f"{place:04}" + "x" * 1500 for place in range(1000)]
    column = {"name": "channel", "categories": categories, "other": False, "missing": False}
    table = SchemaMessage.model_validate({**a_table().model_dump(), "categorical": [column]})
    with pytest.raises(MessageError, match=Fault.BAD_HEADER):
        encode_request(a_request(table=table))


def read_reply(data: bytes) -> object:
    return decode_reply(data, a_request(), "bank1", PARAMS)


finite = st.floats(allow_nan=False, allow_infinity=False)
names = st.text(min_size=1, max_size=20)
A_DATE = {"parts": ["days", "week"], "mean": 1.5, "scale": 2.0, "median": 1.0, "missing": True, "day_first": False}
tables = st.builds(
    lambda target, numeric, categorical, classes: SchemaMessage.model_validate(
        {
            "target": target,
            "task": "classification",
            "numeric": [{"name": n, "mean": m, "scale": s, "median": m, "missing": s > 1} for n, m, s in numeric],
            "categorical": [{"name": n, "categories": c, "other": True, "missing": False} for n, c in categorical],
            "hashed": [{"name": n, "buckets": len(n), "missing": True} for n, _ in categorical],
            "dates": [{**A_DATE, "name": n} for n, _ in categorical],
            "texts": [
                {"name": n, "buckets": 8, "slots": len(n), "common": [7], "missing": False} for n, _ in categorical
            ],
            "images": [{"name": n, "size": [1, 2, 3], "means": [0.5], "scales": [0.1]} for n, _ in categorical],
            "left_out": [{"name": n, "why": "empty"} for n, _ in categorical],
            "classes": classes,
            "target_mean": 0.0,
            "target_scale": 1.0,
        }
    ),
    names,
    st.lists(st.tuples(names, finite, finite.filter(lambda x: x > 0)), max_size=4),
    st.lists(st.tuples(names, st.lists(st.text(max_size=5), min_size=1, max_size=4)), max_size=3),
    st.lists(st.integers(-(2**53), 2**53), max_size=4) | st.lists(names, max_size=4),
)
requests = st.builds(
    Request,
    protocol=st.just(3),
    kind=st.just("update"),
    consumer=st.text(max_size=20),
    contract=st.text(max_size=20),
    run=st.text("0123456789abcdef", min_size=32, max_size=32),
    round=st.integers(0, 2**53 - 1),
    seed=st.integers(0, 2**63 - 1),
    task=st.builds(
        TaskMessage,
        model=st.none()
        | st.builds(
            ModelMessage,
            kind=st.sampled_from(["linear", "logistic", "mlp", "cnn"]),
            inputs=st.lists(st.integers(1, 10**7), min_size=1, max_size=3).map(tuple),
            outputs=st.integers(1, 10**7),
            hidden=st.lists(st.integers(1, 10**7), max_size=5).map(tuple),
        ),
        loss=st.sampled_from(["cross-entropy", "squared-error"]),
        oracle=st.builds(
            OracleMessage,
            kind=st.sampled_from(["full-gradient", "stochastic-gradient", "local-sgd"]),
            step=st.floats(1e-300, 1e6),
            batch_size=st.integers(1, 10**9),
            epochs=st.integers(1, 10**6),
            momentum=st.floats(0, 1, exclude_max=True),
            steps=st.none() | st.integers(1, 10**9),
            optimizer=st.sampled_from(["sgd", "adam"]),
            weight_decay=st.floats(0, 1e6),
        ),
        table=st.none() | tables,
    ),
)
vectors = st.tuples(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40),
    st.sampled_from([torch.float32, torch.float64]),
).map(lambda given: torch.tensor(given[0], dtype=given[1]))


@settings(max_examples=100)
@given(requests, vectors)
def test_a_request_is_read_as_it_was_written(request: Request, params: torch.Tensor) -> None:
    data = encode_request(request, params)
    again, numbers = decode_request(data)
    assert again == request
    assert numbers is not None and numbers.dtype == params.dtype
    assert numbers.numpy().tobytes() == params.numpy().tobytes()
    assert encode_request(again, numbers) == data


@settings(max_examples=100)
@given(vectors, st.none() | st.floats(0, 1e9), names)
def test_a_reply_is_read_as_it_was_written(update: torch.Tensor, epsilon: float | None, name: str) -> None:
    reply = a_reply(epsilon=epsilon, delta=None if epsilon is None else 1e-5, provider=name)
    again, numbers, *_ = decode_reply(encode_reply(reply, update), a_request(), name, update)
    assert again == reply
    assert numbers is not None and numbers.numpy().tobytes() == update.numpy().tobytes()


def test_the_vector_is_plain_safetensors() -> None:
    data = encode_reply(a_reply(), PARAMS)
    assert torch.equal(load(data[data.index(b"}") + 1 :])["w"], PARAMS)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (encode_reply(a_reply(round=2), PARAMS), Fault.OTHER_ROUND),
        (encode_reply(a_reply(run="f" * 32), PARAMS), Fault.OTHER_ROUND),
        (encode_reply(a_reply(provider="bank2"), PARAMS), Fault.OTHER_PROVIDER),
        (encode_reply(a_reply(), PARAMS[:-1]), Fault.OTHER_SHAPE),
        (encode_reply(a_reply(), PARAMS.double()), Fault.OTHER_SHAPE),
        (encode_reply(a_reply(), PARAMS * torch.inf), Fault.NOT_FINITE),
        (encode_reply(a_reply(), PARAMS * torch.nan), Fault.NOT_FINITE),
        (encode_reply(a_reply()), Fault.BAD_TENSOR),
        (encode_reply(a_reply(), PARAMS.to(torch.float16)), Fault.BAD_TENSOR),
        (encode_reply(a_reply(), PARAMS[:, None]), Fault.BAD_TENSOR),
        (encode_reply(a_reply(), PARAMS) + b"\0", Fault.BAD_TENSOR),
        (encode_reply(a_reply(status="refused", code="privacy-spent"), PARAMS), Fault.BAD_TENSOR),
        (encode_reply(a_reply(status="refused")), Fault.BAD_HEADER),
        (encode_reply(a_reply(code="computation-failed"), PARAMS), Fault.BAD_HEADER),
        (encode_reply(a_reply(), PARAMS).replace(b'"code":""', b'"code":"secret"'), Fault.BAD_HEADER),
        (b"", Fault.NOT_A_MESSAGE),
        (b"DBZ1\xff\xff\xff\xff{}", Fault.NOT_A_MESSAGE),
        (b"\x80\x04\x95" + bytes(40), Fault.NOT_A_MESSAGE),
    ],
)
def test_a_reply_that_is_not_one_is_refused_in_fixed_words(data: bytes, why: str) -> None:
    with pytest.raises(MessageError) as refusal:
        read_reply(data)
    assert str(refusal.value) == why


def headed(text: bytes, rest: bytes = b"") -> bytes:
    return messages.MAGIC + struct.pack(">I", len(text)) + text + rest


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"{", b"{ ", 1),
        lambda text: text.replace(b'"round":3', b'"round":3,"round":3'),
        lambda text: text.replace(b'"round":3', b'"round":3.0'),
        lambda text: text.replace(b'"round":3', b'"round":"3"'),
        lambda text: text.replace(b'"round":3', b'"round":true'),
        lambda text: text.replace(b'"seed":7', b'"seed":9223372036854775808'),
        lambda text: text.replace(b'"step":0.1', b'"step":NaN'),
        lambda text: text.replace(b'"step":0.1', b'"step":1e999'),
        lambda text: text.replace(b'"kind":"mlp"', b'"kind":"os.system"'),
        lambda text: text.replace(b'"protocol":3', b'"protocol":3,"import":"os"'),
        lambda text: text.replace(b'"hidden":[8]', b'"hidden":[' + b"8," * 64 + b"8]"),
        lambda text: text.replace(b'"hidden":[8]', b'"hidden":' + b"[" * 400_000),
    ],
)
def test_a_header_of_any_other_spelling_is_refused(change: Callable[[bytes], bytes]) -> None:
    text = a_request("describe").model_dump_json().encode()
    assert decode_request(headed(text))[0] == a_request("describe")
    assert change(text) != text
    with pytest.raises(MessageError, match=re.escape(Fault.BAD_HEADER)):
        decode_request(headed(change(text)))


def test_what_a_message_announces_takes_no_memory() -> None:
    header = encode_reply(a_reply())
    shape = b'{"w":{"dtype":"F64","shape":[9999999999],"data_offsets":[0,79999999992]}}'
    bombs = [
        messages.MAGIC + struct.pack(">I", 2**32 - 1),
        header + struct.pack("<Q", 2**63),
        header + struct.pack("<Q", len(shape)) + shape,
        headed(b"[" * MAX_HEADER),
        headed(b'{"a":' * (MAX_HEADER // 5)),
        headed(b'"' + b"x" * (MAX_HEADER - 2) + b'"'),
        headed(b"9" * MAX_HEADER),
    ]
    tracemalloc.start()
    try:
        for bomb in bombs:
            for read in (read_reply, decode_request):
                with pytest.raises(MessageError):
                    read(bomb)
        assert tracemalloc.get_traced_memory()[1] < 24 * MAX_HEADER
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_200_000_mutated_messages_end_in_clean_errors_and_bounded_memory() -> None:
    requests = [
        encode_request(a_request(), PARAMS),
        encode_request(a_request(table=a_table()), PARAMS.double()),
        encode_request(a_request("describe")),
    ]
    replies = [
        encode_reply(a_reply(), PARAMS),
        encode_reply(a_reply(epsilon=1.25, delta=1e-5), PARAMS),
        encode_reply(a_reply(status="refused", code="privacy-spent")),
    ]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = {"read": 0, "refused": 0}
    directions: list[tuple[Callable[[bytes], object], list[bytes]]] = [
        (decode_request, requests),
        (read_reply, replies),
    ]
    for read, seeds in directions:
        for data in mutants(seeds, 100_000, random.Random(0)):
            try:
                read(data)
                outcomes["read"] += 1
            except MessageError as error:
                assert str(error) in list(Fault)
                outcomes["refused"] += 1
    assert sum(outcomes.values()) == 200_000
    assert outcomes["refused"] > 100_000
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 * 1024, f"{grown} kB more than before"


def test_a_vector_is_aligned_and_its_own() -> None:
    data = encode_request(a_request(), PARAMS)
    params = decode_request(data)[1]
    assert params is not None
    params += 1.0
    assert np.shares_memory(params.numpy(), np.frombuffer(data, np.uint8)) is False
