"""The enums of pyrmq.codes are what codes.rs says."""

from pathlib import Path

from tools.gen_codes import render

from pyrmq.codes import RequestCode, ResponseCode

ROOT = Path(__file__).resolve().parents[2]


def test_the_enums_are_generated_from_the_rust_table() -> None:
    source = (ROOT / "crates" / "remoting" / "src" / "codes.rs").read_text(encoding="utf-8")
    written = (ROOT / "python" / "pyrmq" / "codes.py").read_text(encoding="utf-8")
    assert render(source) == written, "run python tools/gen_codes.py"


def test_codes_have_apaches_names_and_numbers() -> None:
    assert RequestCode(310).name == "SEND_MESSAGE_V2"
    assert ResponseCode(17).name == "TOPIC_NOT_EXIST"
