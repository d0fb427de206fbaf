"""NEXMark's events: how many of which kind, always the same, and what they say of each other."""

from __future__ import annotations

import re
import time
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from holdfast import nexmark
from holdfast.errors import InputError
from holdfast.nexmark import Config

pytestmark = pytest.mark.spark

EVENTS = 10_000
SLOW = Config(events_per_second=100)
START = datetime(2015, 7, 15, tzinfo=timezone.utc)

Found = tuple[list[Row], list[Row], list[Row]]


def collected(frames: tuple[DataFrame, DataFrame, DataFrame]) -> Found:
    persons, auctions, bids = frames
    return persons.collect(), auctions.collect(), bids.collect()


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Found:
    return collected(nexmark.batch(spark, EVENTS, SLOW))


def at(number: int) -> datetime:
    """When an event happens, at 100 a second, in the naive local time that PySpark collects."""
    return (START + timedelta(milliseconds=10 * number)).astimezone().replace(tzinfo=None)


def test_columns_and_types_are_those_of_the_benchmark(spark: SparkSession) -> None:
    types = [dict(frame.dtypes) for frame in nexmark.batch(spark, 1)]
    assert types == [
        {
            "id": "bigint", "name": "string", "emailAddress": "string", "creditCard": "string",
            "city": "string", "state": "string", "dateTime": "timestamp", "extra": "string",
        },
        {
            "id": "bigint", "itemName": "string", "description": "string", "initialBid": "bigint",
            "reserve": "bigint", "dateTime": "timestamp", "expires": "timestamp",
            "seller": "bigint", "category": "bigint", "extra": "string",
        },
        {
            "auction": "bigint", "bidder": "bigint", "price": "bigint", "channel": "string",
            "url": "string", "dateTime": "timestamp", "extra": "string",
        },
    ]  # fmt: skip
    assert [list(t) for t in types][2][-2:] == ["dateTime", "extra"]


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_bids(
    found: Found, spark: SparkSession
) -> None:
    assert list(map(len, found)) == [EVENTS // 50, EVENTS * 3 // 50, EVENTS * 46 // 50]
    cut = collected(nexmark.batch(spark, 52, SLOW))
    assert list(map(len, cut)) == [2, 4, 46]


def test_ids_and_times_follow_from_the_number_of_the_event(found: Found) -> None:
    persons, auctions, bids = found
    for i, row in enumerate(sorted(persons, key=lambda row: row.id)):
        assert (row.id, row.dateTime) == (1000 + i, at(50 * i))
    for i, row in enumerate(sorted(auctions, key=lambda row: row.id)):
        assert (row.id, row.dateTime) == (1000 + i, at(50 * (i // 3) + 1 + i % 3))
    expected = Counter(at(n) for n in range(EVENTS) if n % 50 >= 4)
    assert Counter(row.dateTime for row in bids) == expected


def test_events_refer_to_others_around_them(found: Found) -> None:
    persons, auctions, bids = found
    for row in auctions:
        last = (row.id - 1000) // 3  # the last person when the auction began
        assert 1000 <= row.seller <= 1000 + last + 10
        assert 10 <= row.category < 15
        assert row.dateTime < row.expires <= row.dateTime + timedelta(milliseconds=2 * 16_660)
        assert 100 <= row.initialBid < row.reserve
    first = min(row.dateTime for row in persons)
    for row in bids:
        block = (row.dateTime - first) // timedelta(milliseconds=500)
        last = 3 * block + 2  # the last auction when the bid was made
        hot = row.auction - 1000 == last - last % 100
        assert hot or max(0, last - 100) <= row.auction - 1000 <= last + 10
        assert 1000 <= row.bidder <= 1000 + block + 10
        assert 100 <= row.price <= 100_000_000
    open_bids = {a.id: (a.dateTime, a.expires) for a in auctions}
    in_time = [b for b in bids if b.auction in open_bids and _in(b.dateTime, *open_bids[b.auction])]
    assert len(in_time) > len(bids) // 4


def _in(when: datetime, first: datetime, last: datetime) -> bool:
    return first <= when <= last


def test_hot_ones_are_as_hot_as_in_the_original(found: Found) -> None:
    _, auctions, bids = found
    hot_bids = sum(row.auction % 100 == 0 for row in bids) / len(bids)
    hot_bidders = sum(row.bidder % 100 == 1 for row in bids) / len(bids)
    hot_sellers = sum(row.seller % 100 == 0 for row in auctions) / len(auctions)
    # A half and three quarters, and a few of those that are drawn at random.
    assert 0.48 < hot_bids < 0.54
    assert 0.73 < hot_bidders < 0.78
    assert 0.70 < hot_sellers < 0.81
    channels = Counter(row.channel for row in bids)
    assert (
        0.48 < sum(channels[c] for c in ("Google", "Facebook", "Baidu", "Apple")) / len(bids) < 0.52
    )


def test_texts_have_the_form_and_size_of_the_original(found: Found) -> None:
    persons, auctions, bids = found
    for row in persons:
        assert re.fullmatch(r"[A-Z][a-z]+ [A-Z][a-z]+", row.name)
        assert re.fullmatch(r"[a-z]{3,6}@[a-z]{3,4}\.com", row.emailAddress)
        assert re.fullmatch(r"(\d{4} ){3}\d{4}", row.creditCard)
        assert row.state in ("AZ", "CA", "ID", "OR", "WA", "WY")
    assert len({row.city for row in persons}) == 10
    for row in bids:
        assert re.fullmatch(
            r"https://www\.nexmark\.com(/[a-z_]{3,4}){3}/item\.htm\?query=1(&channel_id=\d+)?",
            row.url,
        )
        assert re.fullmatch(r"[a-z]{54,82}", row.extra)
    # A channel has one address.
    assert len({row.channel for row in bids}) == len({(row.channel, row.url) for row in bids})
    named = {
        r.channel: int(r.url.partition("&channel_id=")[2]) for r in bids if "&channel_id" in r.url
    }
    for channel, number in named.items():
        bits = int(f"{int(channel.removeprefix('channel-')):032b}"[::-1], 2)
        assert number == min(bits, 2**32 - bits) if bits >= 2**31 else number == bits
    plain = {row.channel for row in bids if row.channel.startswith("channel-")}
    assert 0.87 < len(named) / len(plain) < 0.93
    sizes = [48 + len(a.itemName) + len(a.description) + len(a.extra) for a in auctions]
    assert 480 < sum(sizes) / len(sizes) < 520
    texts = ("name", "emailAddress", "creditCard", "city", "state", "extra")
    sizes = [8 + sum(len(row[name]) for name in texts) for row in persons]
    assert 190 < sum(sizes) / len(sizes) < 210


def test_prices_spread_evenly_over_powers_of_ten(found: Found) -> None:
    powers = Counter(len(str(row.price)) for row in found[2] if row.price < 10**8)
    for digits in range(3, 9):
        assert abs(powers[digits] / len(found[2]) - 1 / 6) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("config", [SLOW, Config(events_per_second=100, out_of_order=500)])
def test_events_are_the_same_however_ids_are_spread(
    spark: SparkSession, found: Found, config: Config
) -> None:
    shuffled = spark.range(EVENTS).repartition(7).orderBy(F.xxhash64("id"))
    every = nexmark.events(shuffled, config)
    frames = (nexmark.person(every), nexmark.auction(every), nexmark.bid(every))
    for again, before in zip(collected(frames), found, strict=True):
        assert Counter(again) == Counter(before)


def test_out_of_order_events_are_the_same_in_another_order(spark: SparkSession) -> None:
    mixed = nexmark.events(spark.range(1000).coalesce(1), Config(100, out_of_order=100))
    numbers = [row.number for row in mixed.collect()]
    assert numbers != sorted(numbers)
    assert [sorted(numbers[i : i + 100]) for i in range(0, 1000, 100)] == [
        list(range(i, i + 100)) for i in range(0, 1000, 100)
    ]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="0 events per second"):
        Config(events_per_second=0)
    with pytest.raises(InputError, match="groups of 1906"):
        Config(out_of_order=2 * 953)
    with pytest.raises(InputError, match="groups of -1"):
        Config(out_of_order=-1)


@pytest.mark.slow
def test_a_stream_brings_the_events_of_the_batch_also_when_it_is_restarted(
    spark: SparkSession, tmp_path: Path
) -> None:
    epochs: dict[int, list[Any]] = {}

    def take(batch: DataFrame, epoch: int) -> None:
        epochs[epoch] = batch.collect()

    def shortened(frames: tuple[DataFrame, DataFrame, DataFrame]) -> DataFrame:
        persons, _, bids = frames
        columns = ("dateTime", "extra")
        return bids.select("bidder", *columns).unionAll(persons.select("id", *columns))

    sources = set()
    for enough in (200, 487):
        frames = nexmark.streams(spark, events=520, events_per_epoch=100, config=SLOW, partitions=3)
        query = (
            shortened(frames)
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "scratch"))
            .start()
        )
        deadline = time.monotonic() + 60
        while sum(map(len, epochs.values())) < enough and time.monotonic() < deadline:
            time.sleep(0.05)
        sources |= {len(progress.sources) for progress in query.recentProgress}
        query.stop()
        query.awaitTermination(60)
    expected = shortened(nexmark.batch(spark, 520, SLOW)).collect()
    assert Counter(row for rows in epochs.values() for row in rows) == Counter(expected)
    assert [len(epochs[epoch]) for epoch in range(6)] == [94] * 5 + [17]
    assert sources == {1}, "persons and bids are read from one source"
