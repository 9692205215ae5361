"""pyrmq.remoting: commands as Python sees them."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq.errors import BrokerError, ConnectionLost, ProtocolError, TopicNotFound
from pyrmq.remoting import Client, Command, answer_error

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(
    code=st.integers(0, 30_000),
    opaque=st.integers(-(2**31), 2**31 - 1),
    fields=st.dictionaries(TEXT, TEXT, max_size=5),
    body=st.binary(max_size=200),
    form=st.sampled_from(["JSON", "ROCKETMQ"]),
)
def test_what_is_encoded_is_decoded(
    code: int, opaque: int, fields: dict[str, str], body: bytes, form: str
) -> None:
    command = Command(code, dict(fields), body, opaque=opaque, serialize_type=form)
    frame = command.encode()
    found = Command.decode(frame + b"next")
    assert found is not None
    decoded, used = found
    assert used == len(frame)
    assert (decoded.code, decoded.opaque, decoded.fields) == (code, opaque, fields)
    assert (decoded.body or b"", decoded.serialize_type) == (body, form)


def test_half_a_frame_is_none_yet() -> None:
    frame = Command(105, {"topic": "orders"}).encode()
    assert Command.decode(frame[:-1]) is None


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (b"\xff\xff\xff\xff" + b"x" * 12, "frame length out of range: -1"),
        (b"\x7f\xff\xff\xff" + b"x" * 12, "over the limit"),
        (b"\x00\x00\x00\x08" + b"\x09\x00\x00\x00" + b"x" * 8, "unknown serialize type: 9"),
    ],
)
def test_a_damaged_frame_is_a_protocol_error(frame: bytes, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        Command.decode(frame)


def test_fields_may_be_numbers_and_truth_values() -> None:
    command = Command(10, {"a": 1, "b": True, "c": "x", "d": None})
    assert command.fields == {"a": "1", "b": "true", "c": "x"}
    with pytest.raises(TypeError, match="field `a` is neither"):
        Command(10, {"a": 1.5})  # type: ignore[dict-item]


def test_a_command_shows_itself() -> None:
    command = Command(17, remark="no route", flag=1)
    assert command.is_response
    assert not command.is_oneway
    assert repr(command).startswith("<Command response code=17")
    assert command == Command(17, remark="no route", flag=1)
    assert command != 17


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(TypeError, match="neither JSON nor ROCKETMQ"):
        Command(1, serialize_type="XML")


def test_answers_become_errors_by_code() -> None:
    error = answer_error("h:1", 105, Command(17, remark="no route"))
    assert isinstance(error, TopicNotFound)
    assert (error.code, error.remark, error.address) == (17, "no route", "h:1")
    assert str(error) == "h:1 answered GET_ROUTEINFO_BY_TOPIC with TOPIC_NOT_EXIST (17): no route"
    odd = answer_error("h:1", 99_999, Command(4711))
    assert type(odd) is BrokerError
    assert "an unknown code (4711)" in str(odd)


def test_a_client_without_a_server_says_where() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with Client() as client, pytest.raises(ConnectionLost, match=f"127.0.0.1:{port}") as caught:
        client.request(f"127.0.0.1:{port}", 105)
    assert (caught.value.address, caught.value.may_exist) == (f"127.0.0.1:{port}", False)
