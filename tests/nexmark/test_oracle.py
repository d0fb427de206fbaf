"""NEXMark's queries in batch: all of them run, and some are checked against plain loops."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from holdfast import nexmark
from holdfast.nexmark import QUERIES, Config
from holdfast.nexmark.oracle import BID_TIES, in_processing_time

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EVENTS = 10_000
TEN_SECONDS = timedelta(seconds=10)
NO_TIME = datetime(1970, 1, 1)

Run = Callable[[str], list[Row]]
Events = dict[str, list[Row]]


@pytest.fixture(scope="module")
def views(spark: SparkSession) -> Iterator[tuple[Run, Events]]:
    """A session with the three views (in memory: there are 19 queries), and their rows."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.ansi.enabled", "true")
    frames = nexmark.batch(session, EVENTS, Config(events_per_second=100, out_of_order=1000))
    names = ("person", "auction", "bid")
    for name, frame in zip(names, frames, strict=True):
        frame.coalesce(1).cache().createTempView(name)
    rows = {name: session.table(name).collect() for name in names}
    yield lambda query: session.sql(query).collect(), rows
    for name in names:
        session.catalog.uncacheTable(name)
        session.catalog.dropTempView(name)


def test_there_is_a_text_for_every_query_and_it_begins_with_what_it_asks() -> None:
    assert sorted(QUERIES) == [*range(10), *range(11, 21)]
    for number, text in QUERIES.items():
        assert text.startswith(f"\n-- {number}, ")


@pytest.mark.parametrize("number", sorted(QUERIES))
def test_every_query_finds_something(views: tuple[Run, Events], number: int) -> None:
    run, _ = views
    assert run(QUERIES[number])


def window_of(time: datetime, size: timedelta = TEN_SECONDS) -> datetime:
    return NO_TIME + (time - NO_TIME) // size * size


def same(rows: Iterable[Any], expected: Iterable[tuple[Any, ...]]) -> None:
    assert Counter(map(tuple, rows)) == Counter(expected)


def bids_in_time(events: Events) -> dict[int, list[Row]]:
    """Of each auction the bids made while it was open."""
    spans = {a.id: (a.dateTime, a.expires) for a in events["auction"]}
    found = defaultdict(list)
    for bid in events["bid"]:
        first, last = spans.get(bid.auction, (None, None))
        if first is not None and last is not None and first <= bid.dateTime <= last:
            found[bid.auction].append(bid)
    return found


def ties(bid: Row) -> tuple[Any, ...]:
    return tuple(bid[name] for name in BID_TIES.split(", "))


def test_averages_are_of_the_highest_bids_in_time(views: tuple[Run, Events]) -> None:
    run, events = views
    auctions = {a.id: a for a in events["auction"]}
    finals = {number: max(b.price for b in bids) for number, bids in bids_in_time(events).items()}
    prices = defaultdict(list)
    for number, price in finals.items():
        prices[auctions[number].category].append(price)
    same(run(QUERIES[4]), [(category, sum(p) / len(p)) for category, p in prices.items()])
    closed = defaultdict(list)
    for number in sorted(finals, key=lambda number: (auctions[number].expires, number)):
        closed[auctions[number].seller].append(finals[number])
    expected = [
        (seller, sum(last) / len(last))
        for seller, prices_of in closed.items()
        for i in range(len(prices_of))
        if (last := prices_of[max(0, i - 9) : i + 1])
    ]
    assert max(map(len, closed.values())) > 10
    same(run(QUERIES[6]), expected)


def test_hot_items_and_highest_bids_are_those_of_their_windows(views: tuple[Run, Events]) -> None:
    run, events = views
    counts: dict[datetime, Counter[int]] = defaultdict(Counter)
    windows = defaultdict(list)
    for bid in events["bid"]:
        last = window_of(bid.dateTime, timedelta(seconds=2))
        for i in range(5):
            counts[last - i * timedelta(seconds=2)][bid.auction] += 1
        windows[window_of(bid.dateTime)].append(bid)
    most = {start: max(of.values()) for start, of in counts.items()}
    hot = [(a, n) for start, of in counts.items() for a, n in of.items() if n == most[start]]
    same(run(QUERIES[5]), hot)
    highest = [
        (b.auction, b.bidder, b.price, b.dateTime, b.extra)
        for most_paid, bids in ((max(b.price for b in bids), bids) for bids in windows.values())
        for b in bids
        if b.price == most_paid
    ]
    same(run(QUERIES[7]), highest)


def test_new_users_are_those_who_sell_in_their_first_window(views: tuple[Run, Events]) -> None:
    run, events = views
    sold = {(a.seller, window_of(a.dateTime)) for a in events["auction"]}
    expected = [
        (p.id, p.name, window_of(p.dateTime))
        for p in events["person"]
        if (p.id, window_of(p.dateTime)) in sold
    ]
    same(run(QUERIES[8]), expected)


def test_winning_last_and_top_bids_are_the_first_in_their_order(views: tuple[Run, Events]) -> None:
    run, events = views
    winners = {
        number: min(bids, key=lambda b: (-b.price, b.dateTime, ties(b)))
        for number, bids in bids_in_time(events).items()
    }
    found = {
        row.id: (row.bidder, row.price, row.bid_dateTime, row.bid_extra) for row in run(QUERIES[9])
    }
    assert found == {
        number: (b.bidder, b.price, b.dateTime, b.extra) for number, b in winners.items()
    }
    last: dict[tuple[int, int], list[Row]] = defaultdict(list)
    of_auction: dict[int, list[Row]] = defaultdict(list)
    for bid in events["bid"]:
        last[bid.bidder, bid.auction].append(bid)
        of_auction[bid.auction].append(bid)
    newest = [min(bids, key=lambda b: (NO_TIME - b.dateTime, ties(b))) for bids in last.values()]
    same(
        run(QUERIES[18]),
        map(tuple, newest),
    )
    same(
        run(QUERIES[19]),
        [
            (*bid, rank)
            for bids in of_auction.values()
            for rank, bid in enumerate(
                sorted(bids, key=lambda b: (-b.price, b.dateTime, ties(b)))[:10], 1
            )
        ],
    )


def test_sessions_end_with_a_pause(views: tuple[Run, Events]) -> None:
    run, events = views
    times = defaultdict(list)
    for bid in events["bid"]:
        times[bid.bidder].append(bid.dateTime)
    expected = []
    for bidder, when in times.items():
        sessions: list[list[datetime]] = []
        for time in sorted(when):
            if sessions and time - sessions[-1][-1] <= TEN_SECONDS:
                sessions[-1].append(time)
            else:
                sessions.append([time])
        expected += [(bidder, len(s), s[0], s[-1] + TEN_SECONDS) for s in sessions]
    assert len(expected) > len(times)
    same(run(QUERIES[11]), expected)


def test_processing_time_is_any_expression(views: tuple[Run, Events]) -> None:
    run, events = views
    start = "TIMESTAMP '2026-01-01 00:00:00'"
    rows = run(in_processing_time(f"{start} + make_dt_interval(0, 0, 0, auction % 20)"))
    expected = Counter((b.bidder, b.auction % 20 // 10) for b in events["bid"])
    found = {(row.bidder, row.starttime.second // 10): row.bid_count for row in rows}
    assert found == expected


def test_statistics_count_by_day(views: tuple[Run, Events]) -> None:
    run, events = views
    bids = events["bid"]
    (row,) = run(QUERIES[15])
    low = [b for b in bids if b.price < 10_000]
    assert (row.day, row.total_bids, row.rank1_bids) == ("2015-07-15", len(bids), len(low))
    assert row.total_bidders == len({b.bidder for b in bids})
    assert row.rank1_auctions == len({b.auction for b in low})
    assert sum(r.total_bids for r in run(QUERIES[16])) == len(bids)
    assert sum(r.sum_price for r in run(QUERIES[17])) == sum(b.price for b in bids)


def test_joins_and_filters_keep_the_rows_they_should(views: tuple[Run, Events]) -> None:
    run, events = views
    persons = {p.id: p for p in events["person"]}
    auctions = {a.id: a for a in events["auction"]}
    bids = events["bid"]
    same(run(QUERIES[0]), [(b.auction, b.bidder, b.price, b.dateTime, b.extra) for b in bids])
    same(run(QUERIES[2]), [(b.auction, b.price) for b in bids if b.auction % 123 == 0])
    local = [
        (p.name, p.city, p.state, a.id)
        for a in auctions.values()
        if a.category == 10 and (p := persons.get(a.seller)) and p.state in ("OR", "ID", "CA")
    ]
    same(run(QUERIES[3]), local)
    counts = sorted(row.c_counts for row in run(QUERIES[14]))
    some = [b for b in bids if 1_000_000 * 1000 < 908 * b.price < 50_000_000 * 1000]
    assert counts == sorted(b.extra.count("c") for b in some)
    joined = run(QUERIES[13])
    same(
        [(r.auction, r.value) for r in joined], [(b.auction, str(b.auction % 10_000)) for b in bids]
    )
    wanted = [b for b in bids if b.auction in auctions and auctions[b.auction].category == 10]
    expanded = run(QUERIES[20])
    same(
        [(r.auction, r.bid_extra, r.auction_extra) for r in expanded],
        [(b.auction, b.extra, auctions[b.auction].extra) for b in wanted],
    )
