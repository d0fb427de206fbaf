"""Statements give what the same statements give in Spark's batch SQL."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.sql import sql
from holdfast.testing import EpochSource

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
FLUSH = BEGIN + timedelta(hours=1)
BIDS = "auction int, bidder string, price bigint, channel struct<name: string, fee: double>, ts timestamp"
AUCTIONS = "id bigint, seller string, price bigint, ts timestamp"


class Case(NamedTuple):
    """A statement, what it is in batch, and the columns that later rows replace earlier ones by."""

    statement: str
    batch: str | None = None
    keys: tuple[str, ...] | None = None


WINDOW = "window(ts, '10 seconds')"
TUMBLED = f"(SELECT *, w.start AS window_start, w.end AS window_end FROM (SELECT *, {WINDOW} w FROM bids))"
HOPPED = (
    "(SELECT *, w.start AS window_start, w.end AS window_end"
    " FROM (SELECT *, window(ts, '10 seconds', '4 seconds') w FROM bids))"
)

CASES = {
    "rows": Case(
        "SELECT auction, upper(b.bidder) AS who, channel.name, price * 2 AS twice, ts FROM bids b"
        " WHERE price % 2 = 0 AND bidder IN ('ann', 'it''s') OR b.channel.fee > 0.5"
    ),
    "running": Case(
        "SELECT auction, count(*) AS n, sum(price) AS s, avg(price) AS a, min(ts) AS lo, max(price) AS hi,"
        " count(bidder) AS b, bool_and(price > 3) AS every3, bool_or(price > 90) AS some90,"
        " round(stddev(price), 6) AS sd, round(var_pop(price), 6) AS v,"
        " count(*) FILTER (WHERE price > 50) AS dear, sum(price) FILTER (WHERE bidder = 'ann') AS anns,"
        " count_if(price < 10) AS cheap, max_by(price, ts) AS latest, sum(price) / count(*) AS per"
        " FROM bids GROUP BY auction",
        keys=("auction",),
    ),
    "first_and_last": Case(
        "SELECT auction, first(price) AS began, last(price) FILTER (WHERE bidder = 'ann') AS ended"
        " FROM bids GROUP BY auction",
        "SELECT auction, min_by(price, struct(ts, price)) AS began,"
        " max_by(price, struct(ts, price)) FILTER (WHERE bidder = 'ann') AS ended"
        " FROM bids GROUP BY auction",
        keys=("auction",),
    ),
    "having": Case(
        "SELECT bidder AS who, price DIV 10 AS tens, count(*) + 1 AS n FROM bids"
        " GROUP BY bidder, price DIV 10 HAVING count(*) >= 2 AND tens > 1",
        "SELECT bidder AS who, price DIV 10 AS tens, count(*) + 1 AS n FROM bids"
        " GROUP BY bidder, price DIV 10 HAVING count(*) >= 2 AND price DIV 10 > 1",
        keys=("who", "tens"),
    ),
    "total": Case("SELECT count(*) AS n, max(price) - min(price) AS gap FROM bids", keys=()),
    "distinct": Case("SELECT DISTINCT auction, bidder FROM bids WHERE price > 20"),
    "keys_only": Case("SELECT auction FROM bids GROUP BY 1"),
    "tumble": Case(
        "SELECT auction, window_start, window_end, count(*) AS n, sum(price) AS s"
        " FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)"
        " GROUP BY auction, window_start, window_end",
        "SELECT auction, window_start, window_end, count(*) AS n, sum(price) AS s"
        f" FROM {TUMBLED} GROUP BY auction, window_start, window_end",
    ),
    "tumble_call": Case(
        "SELECT TUMBLE_END(ts, INTERVAL 10 SECONDS) AS until, upper(bidder) AS who, max(price) AS top"
        " FROM bids WHERE price > 5 GROUP BY TUMBLE(ts, INTERVAL 10 SECONDS), upper(bidder)"
        " HAVING count(*) > 1",
        f"SELECT window_end AS until, upper(bidder) AS who, max(price) AS top FROM {TUMBLED}"
        " WHERE price > 5 GROUP BY window_end, upper(bidder) HAVING count(*) > 1",
    ),
    "session": Case(
        "SELECT bidder, window_start, window_end, count(*) AS n"
        " FROM SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '3' SECOND)"
        " GROUP BY bidder, window_start, window_end",
        "SELECT bidder, session_window.start AS window_start, session_window.end AS window_end,"
        " count(*) AS n FROM bids GROUP BY bidder, session_window(ts, '3 seconds')",
    ),
    # The auctions with most bids of each window: NEXMark's query 5.
    "hottest": Case(
        "WITH n AS (SELECT auction, window_start, window_end, count(*) AS n"
        "   FROM HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '10' SECOND)"
        "   GROUP BY auction, window_start, window_end),"
        " most AS (SELECT max(n) AS most, window_start, window_end FROM n GROUP BY window_start, window_end)"
        " SELECT n.auction, n.window_end, n.n FROM n JOIN most"
        " ON n.window_start = most.window_start AND n.window_end = most.window_end AND n.n >= most.most",
        "WITH n AS (SELECT auction, window_start, window_end, count(*) AS n"
        f"   FROM {HOPPED} GROUP BY auction, window_start, window_end),"
        " most AS (SELECT max(n) AS most, window_start, window_end FROM n GROUP BY window_start, window_end)"
        " SELECT n.auction, n.window_end, n.n FROM n JOIN most"
        " ON n.window_start = most.window_start AND n.window_end = most.window_end AND n.n >= most.most",
    ),
    "cascade": Case(
        "SELECT window_start, sum(n) AS n, count(*) AS groups FROM (SELECT window_start,"
        " window_end, bidder, count(*) AS n FROM HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '4' SECOND,"
        " INTERVAL '10' SECOND) GROUP BY window_start, window_end, bidder)"
        " GROUP BY window_start",
        "SELECT window_start, sum(n) AS n, count(*) AS groups FROM (SELECT window_start,"
        f" window_end, bidder, count(*) AS n FROM {HOPPED} GROUP BY window_start, window_end, bidder)"
        " GROUP BY window_start",
    ),
    # Rows that are already in their windows, grouped, and joined with themselves by the start alone.
    "same_start": Case(
        "WITH n AS (SELECT auction, window_start, window_end, count(*) AS n FROM (SELECT * FROM"
        "   TUMBLE(TABLE(bids), DESCRIPTOR(ts), INTERVAL '10' SECOND) WHERE price > 500)"
        "   GROUP BY auction, window_start, window_end),"
        " most AS (SELECT max(n) AS most, window_start, window_end FROM n GROUP BY window_start, window_end)"
        " SELECT n.auction, n.window_end, n.n FROM n JOIN most"
        " ON n.window_start = most.window_start AND n.n >= most.most",
        "WITH n AS (SELECT auction, window_start, window_end, count(*) AS n"
        f"   FROM {TUMBLED} WHERE price > 500 GROUP BY auction, window_start, window_end),"
        " most AS (SELECT max(n) AS most, window_start, window_end FROM n GROUP BY window_start, window_end)"
        " SELECT n.auction, n.window_end, n.n FROM n JOIN most"
        " ON n.window_start = most.window_start AND n.n >= most.most",
    ),
    "inner": Case(
        "SELECT a.seller, b.price, a.price AS reserve, b.ts, a.ts FROM bids b JOIN auctions AS a"
        " ON b.auction = a.id AND a.ts BETWEEN b.ts - INTERVAL '6' SECOND AND b.ts + INTERVAL '1' SECOND"
        " AND b.price > a.price WHERE seller <> 'sue' AND b.bidder = 'ann'",
        "SELECT a.seller, b.price, a.price AS reserve, b.ts, a.ts AS a_ts FROM bids b JOIN auctions AS a"
        " ON b.auction = a.id AND a.ts BETWEEN b.ts - INTERVAL '6' SECOND AND b.ts + INTERVAL '1' SECOND"
        " AND b.price > a.price WHERE seller <> 'sue' AND b.bidder = 'ann'",
    ),
    "comma": Case(
        "SELECT b.bidder, id, a.ts FROM bids b, auctions a WHERE b.auction = a.id AND a.ts > b.ts"
        " AND a.ts <= b.ts + INTERVAL '5' SECOND AND bidder <> seller"
    ),
    "left": Case(
        "SELECT b.auction, b.bidder, b.ts AS at, a.id, a.seller, a.price FROM bids b LEFT JOIN auctions a"
        " ON a.id = b.auction AND b.ts >= a.ts AND b.ts <= a.ts + INTERVAL '2' SECOND"
    ),
    "full": Case(
        "SELECT b.auction, b.bidder, b.ts AS at, a.id, a.seller, a.ts AS since FROM bids b"
        " FULL OUTER JOIN auctions a ON a.id = b.auction"
        " AND a.ts BETWEEN b.ts - INTERVAL 2 SECONDS AND b.ts"
    ),
    "semi": Case(
        "SELECT bidder, price, ts FROM bids b LEFT SEMI JOIN auctions a ON a.id = b.auction"
        " AND a.ts BETWEEN b.ts - INTERVAL 2 SECONDS AND b.ts"
    ),
    "anti": Case(
        "SELECT * EXCEPT (channel) FROM bids b LEFT ANTI JOIN auctions a ON a.id = b.auction"
        " AND a.ts BETWEEN b.ts - INTERVAL 2 SECONDS AND b.ts"
    ),
    "top": Case(
        "SELECT * FROM (SELECT auction, price, bidder, ROW_NUMBER() OVER"
        " (PARTITION BY auction ORDER BY price DESC, ts) AS rn FROM bids) WHERE rn <= 3"
    ),
    "first": Case(
        "SELECT bidder, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder ORDER BY ts) AS rn"
        " FROM bids) WHERE rn = 1 AND price > 0"
    ),
    "top_of_windows": Case(
        "SELECT window_end, auction, n, place FROM (SELECT window_end, auction, count(*) AS n,"
        " ROW_NUMBER() OVER (PARTITION BY window_end ORDER BY count(*) DESC, auction) AS place"
        " FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_end, auction)"
        " WHERE place < 3",
        "SELECT window_end, auction, n, place FROM (SELECT window_end, auction, count(*) AS n,"
        " ROW_NUMBER() OVER (PARTITION BY window_end ORDER BY count(*) DESC, auction) AS place"
        f" FROM {TUMBLED} GROUP BY window_end, auction) WHERE place < 3",
    ),
    "top_in_windows": Case(
        "SELECT window_start, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start"
        " ORDER BY price DESC) AS rn FROM TUMBLE(TABLE bids, DESCRIPTOR(ts),"
        " INTERVAL '10' SECOND)) WHERE rn <= 2",
        "SELECT window_start, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start"
        f" ORDER BY price DESC) AS rn FROM {TUMBLED}) WHERE rn <= 2",
    ),
    "union": Case(
        "WITH a AS (SELECT seller AS who, price, ts FROM auctions)"
        " SELECT who, count(*) AS n FROM (SELECT who, ts FROM a UNION ALL SELECT bidder, ts FROM bids"
        " UNION ALL SELECT who, ts FROM a WHERE price > 50) GROUP BY who",
        keys=("who",),
    ),
}  # fmt: skip


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def fill(bids: EpochSource, auctions: EpochSource) -> None:
    """Some minutes of bids, a little out of order, then rows that close every window."""
    chance = random.Random(7)
    for epoch in range(2):
        rows: list[Any] = []
        offers: list[Any] = []
        for i in range(30):
            # Times are all different, so that every order by them is one order.
            seconds = epoch * 24 + i * 0.8 + chance.choice([-1.5, 0, 0.7]) + i / 1000 + epoch / 100
            auction = chance.choice([1, 2, 3, None])
            bidder = chance.choice(["ann", "bob", "it's", "sue"])
            price = chance.randrange(100) * 100 + len(rows)
            rows.append(
                (auction, bidder, price, {"name": "web", "fee": chance.random()}, at(seconds))
            )
            if i % 3 == 0:
                seller = chance.choice(["sue", "tom"])
                offers.append(
                    (chance.choice([1, 2, 4, None]), seller, chance.randrange(9000), at(seconds))
                )
        bids.add(rows)
        auctions.add(offers)
    for _ in range(2):
        # No filter takes them away: the watermark follows the rows that reach an operator.
        bids.add([(None, "ann", 77, None, FLUSH)])
        auctions.add([(None, "tom", 77, FLUSH)])


def folded(table: pa.Table, keys: tuple[str, ...] | None = None) -> Counter[str]:
    """What the changes come to."""
    if keys is not None or "change" in table.column_names:
        table = hf.fold(table, key=keys, in_order=True)
    return Counter(line(row) for row in table.to_pylist())


def line(row: dict[str, Any]) -> str:
    values = dict(row)
    for name, value in values.items():
        if isinstance(value, datetime) and value.tzinfo is None:
            values[name] = value.replace(tzinfo=timezone.utc)
    return repr(sorted(values.items()))


def from_the_end(text: str) -> bool:
    """Whether a row is of what closes the windows: batch has no watermark, and closes those too."""
    return (
        "datetime.datetime(2026, 1, 1, 1, 0" in text
        or "datetime.datetime(2026, 1, 1, 0, 59" in text
    )


# One pipeline each: what a quick look needs, and all the rest.
QUICK = ("having", "first_and_last", "tumble", "inner", "first")
PIPELINES = [
    pytest.param(QUICK, id="quick"),
    pytest.param([name for name in CASES if name not in QUICK], id="rest", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("names", PIPELINES)
def test_statements_equal_batch(spark: SparkSession, tmp_path: Path, names: Sequence[str]) -> None:
    bids, auctions = EpochSource(spark, BIDS), EpochSource(spark, AUCTIONS)
    fill(bids, auctions)
    streams = {
        "bids": hf.stream(bids.df).with_watermark("ts", "4 s"),
        "auctions": hf.stream(auctions.df).with_watermark("ts", "4 s"),
    }
    parts = []
    for name in names:
        case = CASES[name]
        used = {k: v for k, v in streams.items() if k in case.statement}
        parts.append(sql(case.statement, **used).write_to(hf.sinks.memory(f"sql-{name}")))
    query = hf.pipeline(*parts).start(
        "sql", tmp_path / "ck", trigger="manual", local_dir=tmp_path / "local", partitions=1
    )
    for _ in range(len(bids)):
        query.step(timeout=240)
    query.checkpoint()
    query.stop()
    bids.rows_so_far().createOrReplaceTempView("bids")
    auctions.rows_so_far().createOrReplaceTempView("auctions")
    for name in names:
        case = CASES[name]
        found = folded(hf.sinks.memory_table(f"sql-{name}"), case.keys)
        wanted = folded(spark.sql(case.batch or case.statement).toArrow())
        for counts in (found, wanted):
            for text in [text for text in counts if from_the_end(text)]:
                del counts[text]
        assert wanted, name
        assert found == wanted, (
            name,
            list((wanted - found).items())[:5],
            list((found - wanted).items())[:5],
        )
