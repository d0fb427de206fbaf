"""Which Parquet encoding suits which column of a stored run: size and time, per kind of column.

``python bench/encodings.py [--rows N] [--json FILE]`` prints the table that docs/encodings.md keeps.
A run is sorted by hash, so every column but the hash is in random order.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROW_GROUP = 1 << 17
NUMBERS = ("PLAIN", "DICTIONARY", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT")
REALS = ("PLAIN", "DICTIONARY", "BYTE_STREAM_SPLIT")
TEXTS = ("PLAIN", "DICTIONARY", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY")
LEVELS = (1, 3, 6)


def columns(rows: int) -> Iterator[tuple[str, pa.Array, tuple[str, ...], dict[str, Any]]]:
    """Columns as they stand in the delta run of one epoch, with the encodings worth trying."""
    random = np.random.default_rng(7)
    ids = random.integers(0, 10 * rows, rows)
    start_us = 1_700_000_000_000_000
    yield (
        "hash (sorted)",
        pa.array(np.sort(random.integers(0, 2**62, rows, dtype=np.uint64))),
        NUMBERS,
        {},
    )
    yield "count (int64)", pa.array(random.geometric(0.2, rows)), NUMBERS, {}
    yield "count (int64, Zipf)", pa.array(np.minimum(random.zipf(1.3, rows), 10**9)), NUMBERS, {}
    cents = np.round(random.gamma(2.0, 20.0, rows), 2)
    yield "sum of prices (double)", pa.array(cents), REALS, {}
    yield "sum of measurements (double)", pa.array(random.random(rows) * 5), REALS, {}
    times = start_us + random.integers(0, 10**7, rows)
    yield "time (timestamp, 10 s wide)", pa.array(times, pa.timestamp("us", "UTC")), NUMBERS, {}
    yield "key (int64)", pa.array(ids), NUMBERS, {}
    yield "key (int32)", pa.array(ids.astype(np.int32)), NUMBERS, {}
    yield "key (string, word-N)", pa.array([f"word-{i}" for i in ids.tolist()]), TEXTS, {}
    customers = [f"customer/{i:012d}" for i in ids.tolist()]
    yield "key (string, customer/N)", pa.array(customers), TEXTS, {}
    digits = random.integers(0, 2**63, (rows, 2))
    uuids = [f"{a:016x}{b:016x}" for a, b in digits.tolist()]
    yield "key (string, 32 hex digits)", pa.array(uuids), TEXTS, {}
    cities = random.integers(0, 500, rows)
    yield "key (string, 500 values)", pa.array([f"city {i}" for i in cities.tolist()]), TEXTS, {}
    small = pc.cast(pa.array(cents), pa.decimal128(18, 2))
    decimals = pc.cast(small, pa.decimal128(38, 2))
    yield "decimal(18,2)", small, REALS, {}
    yield "decimal(18,2) as integer", small, NUMBERS, {"store_decimal_as_integer": True}
    yield "decimal(38,2)", decimals, REALS, {}
    yield "flag (boolean)", pa.array(random.random(rows) < 0.1), ("PLAIN", "RLE"), {}


def encode(array: pa.Array, encoding: str, level: int, extra: dict[str, Any]) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    dictionary = encoding == "DICTIONARY"
    options: dict[str, Any] = {} if dictionary else {"column_encoding": {"c": encoding}}
    pq.write_table(
        pa.table({"c": array}),
        sink,
        row_group_size=ROW_GROUP,
        compression="zstd",
        compression_level=level,
        use_dictionary=dictionary,
        write_statistics=False,
        **options,
        **extra,
    )
    return sink.getvalue()


def decode(data: pa.Buffer) -> pa.Table:
    return pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)


def best_time(action: Callable[[], Any], repeats: int = 5) -> tuple[float, Any]:
    """The least CPU seconds of several tries, and what it returned."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        result = action()
        times.append(time.process_time() - start)
    return min(times), result


def measure(rows: int) -> Iterator[dict[str, Any]]:
    for kind, array, encodings, extra in columns(rows):
        for encoding in encodings:
            for level in LEVELS:
                write, data = best_time(partial(encode, array, encoding, level, extra))
                read, _ = best_time(partial(decode, data))
                yield {
                    "column": kind,
                    "encoding": encoding,
                    "zstd": level,
                    "bytes_per_row": len(data) / rows,
                    "write_ns_per_row": write / rows * 1e9,
                    "read_ns_per_row": read / rows * 1e9,
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4 * ROW_GROUP)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = []
    print("| column | encoding | zstd | bytes/row | write ns/row | read ns/row |")
    print("|---|---|---|---|---|---|")
    for result in measure(arguments.rows):
        results.append(result)
        print(
            f"| {result['column']} | {result['encoding']} | {result['zstd']} "
            f"| {result['bytes_per_row']:.2f} | {result['write_ns_per_row']:.0f} "
            f"| {result['read_ns_per_row']:.0f} |",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"rows": arguments.rows, "results": results}, indent=1)
        )


if __name__ == "__main__":
    main()
