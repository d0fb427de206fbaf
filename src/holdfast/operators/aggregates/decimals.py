"""Exact arithmetic on decimal128 columns: Arrow's 16-byte numbers taken apart into limbs.

A column's *halves* are an array of shape (rows, 2): the low and the high 64 bits of each unscaled
value, in two's complement.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.operators.columns import Bits, NDArray
from holdfast.operators.groups import GroupOverflow, RowGroups

__all__ = ["Halves", "average_decimals", "halves_of", "sum_decimals"]

Halves = npt.NDArray[np.int64]
_32 = np.uint64(32)
_LOW = 0xFFFFFFFF


def halves_of(array: pa.Array) -> Halves:
    """Low and high 64 bits of each value of a decimal128 column.

    >>> from decimal import Decimal
    >>> halves_of(pa.array([Decimal("-0.01")], pa.decimal128(5, 2))).tolist()
    [[-1, -1]]
    """
    if not len(array):
        return np.empty((0, 2), np.int64)
    words: Halves = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)
    return words[array.offset : array.offset + len(array)]


def sum_decimals(halves: Halves, groups: RowGroups, kind: pa.DataType) -> Halves:
    """The exact sum of each group; ``GroupOverflow`` if one has more digits than ``kind``."""
    low, high = halves[:, 0], halves[:, 1]
    if groups.count and (high == low >> 63).all():
        bound = max(-int(low.min()), int(low.max())) * groups.largest
        if bound < min(2**63, 10**kind.precision):
            total = groups.sum_ints(low)
            return np.column_stack((total, total >> 63))
    limbs = [low & _LOW, (low >> 32) & _LOW, high & _LOW, high >> 32]
    sums = [groups.reduce(np.add, limb) for limb in limbs]
    for i in range(3):
        sums[i + 1] = sums[i + 1] + (sums[i] >> 32)
    fits = (sums[3] >= -(2**31)) & (sums[3] < 2**31)
    total = _joined([limb & _LOW for limb in sums])
    _check(fits & _has_digits(total, kind.precision), kind)
    return total


def average_decimals(
    sums: Halves, counts: npt.NDArray[np.int64], scale: int, kind: pa.DataType
) -> Halves:
    """Sums of the given scale divided by counts (none is 0), rounded half up to ``kind``."""
    # The limbs of the division leave room for counts of 32 bits. The few groups with more rows
    # are divided one by one.
    vast = np.flatnonzero(counts >= 2**32)
    small = counts.copy()
    small[vast] = 1
    result, fits = _averages(sums, small, scale, kind.scale)
    for i in vast.tolist():
        total = (int(sums[i, 1]) << 64) | (int(sums[i, 0]) & (2**64 - 1))
        value = _average(total, int(counts[i]), scale, kind.scale)
        fits[i] = abs(value) < 2**127
        if fits[i]:
            result[i] = np.frombuffer(value.to_bytes(16, "little", signed=True), np.int64)
    _check(fits & _has_digits(result, kind.precision), kind)
    return result


def _average(total: int, count: int, scale: int, result_scale: int) -> int:
    doubled = 2 * abs(total) * int(10 ** (result_scale - scale))
    rounded = (doubled + count) // (2 * count)
    return rounded if total >= 0 else -rounded


def _averages(
    sums: Halves, counts: npt.NDArray[np.int64], scale: int, result_scale: int
) -> tuple[Halves, Bits]:
    negative = sums[:, 1] < 0
    divisor = counts.astype(np.uint64)
    quotient, rest = _divided(_limbs(np.where(negative[:, None], _negated(sums), sums)), divisor)
    factor = np.uint64(10 ** (result_scale - scale))
    carry, rest = np.divmod(rest * factor, divisor)
    carry += (2 * rest >= divisor).astype(np.uint64)
    limbs = []
    for limb in quotient:
        value = limb * factor + carry
        limbs.append(value & np.uint64(_LOW))
        carry = value >> _32
    fits: Bits = (carry == 0) & (limbs[3] < 2**31)
    result = _joined([limb.astype(np.int64) for limb in limbs])
    return np.where(negative[:, None], _negated(result), result), fits


def _limbs(halves: Halves) -> list[npt.NDArray[np.uint64]]:
    low, high = halves[:, 0].view(np.uint64), halves[:, 1].view(np.uint64)
    mask = np.uint64(_LOW)
    return [low & mask, low >> _32, high & mask, high >> _32]


def _divided(
    limbs: list[npt.NDArray[np.uint64]], divisor: npt.NDArray[np.uint64]
) -> tuple[list[npt.NDArray[np.uint64]], npt.NDArray[np.uint64]]:
    quotient = []
    rest = np.zeros_like(divisor)
    for limb in reversed(limbs):
        digit, rest = np.divmod((rest << _32) | limb, divisor)
        quotient.append(digit)
    return quotient[::-1], rest


def _negated(halves: Halves) -> Halves:
    low, high = halves[:, 0], halves[:, 1]
    return np.column_stack((~low + 1, ~high + (low == 0)))


def _joined(limbs: list[NDArray]) -> Halves:
    return np.column_stack((limbs[0] | (limbs[1] << 32), limbs[2] | (limbs[3] << 32)))


def _has_digits(halves: Halves, precision: int) -> Bits:
    """Whether -10**precision < value < 10**precision."""
    low, high = halves[:, 0].view(np.uint64), halves[:, 1]

    def parts(bound: int) -> tuple[np.uint64, int]:
        return np.uint64(bound & (2**64 - 1)), bound >> 64

    top_low, top_high = parts(10**precision)
    bottom_low, bottom_high = parts(-(10**precision))
    below = (high < top_high) | ((high == top_high) & (low < top_low))
    above = (high > bottom_high) | ((high == bottom_high) & (low > bottom_low))
    result: Bits = below & above
    return result


def _check(fits: Bits, kind: pa.DataType) -> None:
    if not fits.all():
        raise GroupOverflow(int(np.argmin(fits)), kind)
