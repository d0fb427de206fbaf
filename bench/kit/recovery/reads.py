"""How fast small pieces of a stored run can be read by a host of the lab. Runs there, as a program.

``python -m bench.kit.recovery.reads hdfs://nn:9000 PATH COLUMN``; the answer is a line of JSON.
"""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec
import numpy as np
import pyarrow.parquet as pq

_LENGTH = 1_200  # bytes of a piece: some 64 rows of the key column
_READS = 6_000
_AT_ONCE = 32
_WARM_UP = 500


class SmallReads(msgspec.Struct, frozen=True):
    """What a host could read of a stored run."""

    per_second: float
    """Pieces at random places."""
    key_share: float
    """How much of the run's bytes one column has."""


async def per_second(url: str, path: str) -> float:
    """Reads per second at random places, as many at once as were fastest when it was tried."""
    from hdfs_native import AsyncClient

    client = AsyncClient(url)  # a reader doesn't keep it alive, but needs it
    reader = await client.read(path)
    places = np.random.default_rng(1).integers(0, len(reader) - _LENGTH, _WARM_UP + _READS).tolist()

    async def read(wanted: list[int]) -> None:
        while wanted:
            piece = await reader.read_range(wanted.pop(), _LENGTH)
            if len(piece) != _LENGTH:
                raise OSError(f"{len(piece)} bytes instead of {_LENGTH}")

    async def read_all(wanted: list[int]) -> float:
        began = time.monotonic()
        await asyncio.gather(*(read(wanted) for _ in range(_AT_ONCE)))
        return time.monotonic() - began

    await read_all(places[_READS:])
    return _READS / await read_all(places[:_READS])


def share_of(column: str, url: str, path: str) -> float:
    """How much of a run's bytes one column has."""
    from hdfs_native import Client

    client = Client(url)
    found = pq.read_metadata(client.read(path))
    sizes = {column: 0, "": 0}
    for group in range(found.num_row_groups):
        for index in range(found.num_columns):
            chunk = found.row_group(group).column(index)
            name = column if chunk.path_in_schema == column else ""
            sizes[name] += chunk.total_compressed_size
    return sizes[column] / sum(sizes.values())


if __name__ == "__main__":
    where, what, key = sys.argv[1:]
    seen = SmallReads(asyncio.run(per_second(where, what)), share_of(key, where, what))
    print(msgspec.json.encode(seen).decode(), flush=True)
