"""Fractions as text: the exact amounts that ledgers and release folders keep."""

from __future__ import annotations

from fractions import Fraction


def encode_fraction(exact: Fraction) -> str:
    """Write a fraction as numerator/denominator in hexadecimal.

    The digits are hexadecimal because Python refuses to print decimal numbers as long as these
    may be.
    """
    return f"{exact.numerator:x}/{exact.denominator:x}"


def decode_fraction(text: str) -> Fraction:
    """Read a fraction that `encode_fraction` wrote; other texts raise ValueError or TypeError."""
    return Fraction(*(int(digits, 16) for digits in text.split("/")))
