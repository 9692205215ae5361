"""Generates SQL92 expressions and properties: valid, nearly valid, and random tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

Properties = dict[str, str]

NAMES = ("a", "b", "c", "A", "TAGS", "_x", "$y", "now", "inn", "nulls")
INTEGERS = ("0", "1", "5", "7L", "10", "12l", "2147483647", "2147483648", "9223372036854775807")
DECIMALS = ("1.5", "5.", ".5", "1e3", "2E-3", "10.0", "007.5", "4.9E-324", "1.7976931348623157e308")
TEXTS = ("x", "xy", "yx", "5", "true", "", "it''s", "a b", "\u00e9\U0001f600", "--", "/*", "1.5")
WRONG = ("00", "0L", "0.0", "1e400", "1e-400", "9223372036854775808", "5x", "'", "!", ";", "0x5")
VALUES = (
    *("0", "1", "5", "+5", "-5", "-0", "05", "10", "5.0", " 5 ", "5.", ".5", "1e3", "-.5E+1"),
    *("2147483647", "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808"),
    *("NaN", "-NaN", "Infinity", "-Infinity", "inf", "0x1p3", "0x1.8p-2f", "-0x.8P1", "0xA", "5d"),
    *("1e400", "1e-400", "-0.0", "0.0", "1.5", "\u0665", "\uff15", "5\u0665", "\U0001d7d3", "5L"),
    *("x", "xy", "yx", "xyx", "true", "TRUE", "False", "", "it's", "a b", "\u00e9\U0001f600", "+"),
    *("\t5\n", "\u00a05", "1_0", "e5", "1e", "1e5f", "--", "1e99999999999", "0e99999999999"),
)
ORDERS = ("<", "<=", ">", ">=")
KEYWORDS = (
    *("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"),
    *("CONTAINS", "STARTSWITH", "ENDSWITH"),
)
SIGNS = ("=", "<>", *ORDERS, "(", ",", ")", "+", "-")
BLANKS = (
    " ",
    "  ",
    "\t",
    "\n",
    "\r\n",
    "\f",
    "/* c */",
    "/***/",
    "-- c\n",
    "--\r",
    " /* a * / */ ",
)


class Maker:
    """Generates random expressions and properties.

    Args:
        chance: source of randomness.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def properties(self) -> Properties:
        """Return a few properties."""
        pick = self._chance
        names = pick.sample(NAMES, pick.randrange(len(NAMES)))
        return {name: pick.choice(VALUES) for name in names}

    def expression(self) -> str:
        """Return an expression, which may be invalid."""
        pick = self._chance
        tokens = self._condition(pick.choice([0, 1, 1, 2, 2, 3]))
        kind = pick.random()
        if kind < 0.25:
            for _ in range(pick.randrange(1, 4)):
                self._mutate(tokens)
        text = self._joined(tokens)
        if kind > 0.95:
            at = pick.randrange(len(text) + 1)
            text = (
                text[:at] + pick.choice(["", "'", "(", "L", "e1", "\u00e9", "*/"]) + text[at + 1 :]
            )
        return text

    def _condition(self, depth: int) -> list[str]:
        pick = self._chance
        if depth == 0:
            return self._comparison()
        match pick.randrange(8):
            case 0 | 1 | 2:
                return [*self._condition(depth - 1), "AND", *self._condition(depth - 1)]
            case 3 | 4:
                return [*self._condition(depth - 1), "OR", *self._condition(depth - 1)]
            case 5:
                return ["NOT", "(", *self._condition(depth - 1), ")"]
            case 6:
                left, right = self._condition(depth - 1), self._condition(depth - 1)
                return ["(", *left, ")", pick.choice(["=", "<>"]), "(", *right, ")"]
            case _:
                return ["(", *self._condition(depth - 1), ")"]

    def _comparison(self) -> list[str]:
        pick = self._chance
        left, maybe_not = self._operand(), pick.choice([[], ["NOT"]])
        match pick.randrange(12):
            case 0 | 1 | 2:
                return [*left, pick.choice(["=", "<>"]), *self._operand()]
            case 3 | 4:
                return [*self._number(), pick.choice(ORDERS), *self._number()]
            case 5:
                return [*left, "IS", *maybe_not, "NULL"]
            case 6:
                return [
                    *self._number(),
                    *maybe_not,
                    "BETWEEN",
                    *self._number(),
                    "AND",
                    *self._number(),
                ]
            case 7:
                words = [word for _ in range(pick.randrange(1, 7)) for word in (",", self._text())]
                return [self._name(), *maybe_not, "IN", "(", *words[1:], ")"]
            case 8:
                search = pick.choice(["CONTAINS", "STARTSWITH", "ENDSWITH"])
                return [*left, *maybe_not, search, self._text()]
            case 9:
                return [*maybe_not, self._name()]
            case 10:
                return [*maybe_not, pick.choice(["TRUE", "FALSE", "NULL"])]
            case _:
                return [*left, pick.choice(["=", "<>", *ORDERS]), *self._operand()]

    def _operand(self) -> list[str]:
        pick = self._chance
        match pick.randrange(10):
            case 0 | 1 | 2 | 3:
                return [self._name()]
            case 4 | 5:
                return [self._text()]
            case 6:
                return [pick.choice(["TRUE", "FALSE", "TRUE", "FALSE", "NULL"])]
            case 7:
                return ["(", *self._condition(pick.randrange(2)), ")"]
            case _:
                return self._number()

    def _number(self) -> list[str]:
        pick = self._chance
        signs = ["+", "-"][: pick.randrange(3)] if pick.random() < 0.3 else []
        kinds = [NAMES, NAMES, INTEGERS, INTEGERS, DECIMALS]
        word = pick.choice(pick.choice(kinds))
        return [*signs, "(", word, ")"] if pick.random() < 0.05 else [*signs, word]

    def _name(self) -> str:
        return self._chance.choice(NAMES)

    def _text(self) -> str:
        return f"'{self._chance.choice(TEXTS)}'"

    def _mutate(self, tokens: list[str]) -> None:
        pick = self._chance
        at = pick.randrange(len(tokens)) if tokens else 0
        words = (*KEYWORDS, *SIGNS, *WRONG, *NAMES[:3], "'x'", "1")
        match pick.randrange(4):
            case 0:
                del tokens[at : at + 1]
            case 1:
                tokens.insert(at, pick.choice(words))
            case 2:
                tokens[at : at + 1] = [pick.choice(words)]
            case _:
                tokens[at : at + 1] = tokens[at : at + 1] * 2

    def _joined(self, tokens: list[str]) -> str:
        pick, text = self._chance, ""
        for token in tokens:
            word = token
            if token in KEYWORDS:
                word = pick.choice([token, token.lower(), token.title(), token.swapcase()])
            blank = " " if pick.random() < 0.85 else pick.choice(BLANKS)
            # Without a blank two words become one, which is also a case.
            text += ("" if pick.random() < 0.08 else blank) + word
        return text + pick.choice(["", "", "", " ", "\n", "-- end", " -- end\n"])
