# The native module. It makes no public promise: defaults, checks and documentation live in the
# Python modules over it. One block a file of crates/bindings/src.

from typing import Self, final

from typing_extensions import Buffer

__version__: str
BUILD_PROFILE: str

# command.rs
@final
class Command:
    def __new__(
        cls,
        code: int,
        fields: dict[str, str | int | bool | None] | None = None,
        body: Buffer | str | None = None,
        *,
        remark: str | None = None,
        opaque: int = 0,
        flag: int = 0,
        language: str = "PYTHON",
        version: int = ...,
        serialize_type: str = "JSON",
    ) -> Self: ...
    @staticmethod
    def decode(data: Buffer) -> tuple[Command, int] | None: ...
    def encode(self) -> bytes: ...
    @property
    def code(self) -> int: ...
    @property
    def language(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def opaque(self) -> int: ...
    @property
    def flag(self) -> int: ...
    @property
    def remark(self) -> str | None: ...
    @property
    def serialize_type(self) -> str: ...
    @property
    def fields(self) -> dict[str, str]: ...
    @property
    def body(self) -> bytes | None: ...
    @property
    def is_response(self) -> bool: ...
    @property
    def is_oneway(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
