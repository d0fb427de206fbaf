"""What NEXMark's queries give when all events are there at once: batch SQL over three views.

The views are ``person``, ``auction`` and ``bid``; the session's time zone should be UTC. Definitions and
columns are those of the Nexmark project's Flink SQL, and every one gives the same rows whatever the
order of its input: where the original leaves open which of several equal rows counts, all columns of
the row decide. Where a query differs from the original otherwise, its first line says so. Query 10
writes files and has no result; it is left out.

A stream gives these results when its watermark has passed the last window and the last auction.
"""

# ruff: noqa: S608 - texts are put together from this module's own

from __future__ import annotations

__all__ = ["BID_TIES", "QUERIES", "in_processing_time"]

BID_TIES = "bidder, price, channel, url, extra"
"""What decides between bids that a query's order leaves equal; then they are equal in all columns."""

_STATISTICS = """
    count(*) AS total_bids,
    count(*) FILTER (WHERE price < 10000) AS rank1_bids,
    count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (WHERE price >= 1000000) AS rank3_bids"""
_DISTINCT = "".join(
    f""",
    count(DISTINCT {column}) AS total_{column}s,
    count(DISTINCT {column}) FILTER (WHERE price < 10000) AS rank1_{column}s,
    count(DISTINCT {column}) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_{column}s,
    count(DISTINCT {column}) FILTER (WHERE price >= 1000000) AS rank3_{column}s"""
    for column in ("bidder", "auction")
)
_DAY = "date_format(dateTime, 'yyyy-MM-dd')"
_BIDS_IN_TIME = """
    auction AS A JOIN bid AS B
    ON A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires"""
# Of bids with the same price the first wins.
_WINNING = f"B.price DESC, B.dateTime, {', '.join('B.' + c for c in BID_TIES.split(', '))}"


def in_processing_time(processing_time: str) -> str:
    """Query 12 for bids whose processing time is this SQL expression.

    >>> "window(to_timestamp(p), '10 seconds')" in in_processing_time("to_timestamp(p)")
    True
    """
    return f"""
-- 12, processing time windows: how many bids each bidder made in windows of 10 s of processing time
SELECT bidder, count(*) AS bid_count, w.start AS starttime, w.end AS endtime
FROM (SELECT bidder, window({processing_time}, '10 seconds') AS w FROM bid)
GROUP BY bidder, w
"""


QUERIES: dict[int, str] = {
    0: """
-- 0, pass through: every bid as it is
SELECT auction, bidder, price, dateTime, extra FROM bid
""",
    1: """
-- 1, currency conversion: prices of bids in euro
SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, dateTime, extra FROM bid
""",
    2: """
-- 2, selection: bids for some of the auctions
SELECT auction, price FROM bid WHERE auction % 123 = 0
""",
    3: """
-- 3, local item suggestion: who sells in category 10 in Oregon, Idaho or California
SELECT P.name, P.city, P.state, A.id
FROM auction AS A JOIN person AS P ON A.seller = P.id
WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')
""",
    4: f"""
-- 4, average price for a category: of the highest bids of its auctions (a double, not cut to a bigint)
SELECT category AS id, avg(final) AS final
FROM (SELECT A.id, A.category, max(B.price) AS final FROM {_BIDS_IN_TIME} GROUP BY A.id, A.category)
GROUP BY category
""",
    5: """
-- 5, hot items: the auctions with most bids in windows of 10 s, every 2 s (all, if several have as many)
SELECT auction, num
FROM (
    SELECT auction, num, max(num) OVER (PARTITION BY w) AS most
    FROM (
        SELECT auction, w, count(*) AS num
        FROM (SELECT auction, window(dateTime, '10 seconds', '2 seconds') AS w FROM bid)
        GROUP BY auction, w
    )
)
WHERE num = most
""",
    6: f"""
-- 6, average selling price by seller: whenever an auction closes, of the seller's last 10 that had bids
-- (10 as NEXMark has it, in the order in which they close; Flink's text takes 11 by time of the bid)
SELECT seller, avg_price
FROM (
    SELECT seller, avg(price) OVER (
        PARTITION BY seller ORDER BY expires, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW
    ) AS avg_price
    FROM (
        SELECT A.id, A.seller, A.expires, max(B.price) AS price FROM {_BIDS_IN_TIME}
        GROUP BY A.id, A.seller, A.expires
    )
)
""",
    7: """
-- 7, highest bid: in every window of 10 s (of bids in that window; Flink's text takes its end with it)
SELECT auction, bidder, price, dateTime, extra
FROM (
    SELECT *, max(price) OVER (PARTITION BY w) AS most
    FROM (SELECT *, window(dateTime, '10 seconds') AS w FROM bid)
)
WHERE price = most
""",
    8: """
-- 8, monitor new users: persons who opened an auction in the window of 10 s in which they came
SELECT P.id, P.name, P.w.start AS stime
FROM (SELECT DISTINCT id, name, window(dateTime, '10 seconds') AS w FROM person) AS P
JOIN (SELECT DISTINCT seller, window(dateTime, '10 seconds') AS w FROM auction) AS A
ON P.id = A.seller AND P.w = A.w
""",
    9: f"""
-- 9, winning bids: of each auction the highest bid made while it was open
SELECT id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra,
    auction, bidder, price, bid_dateTime, bid_extra
FROM (
    SELECT A.*, B.auction, B.bidder, B.price, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
        row_number() OVER (PARTITION BY A.id ORDER BY {_WINNING}) AS place
    FROM {_BIDS_IN_TIME}
)
WHERE place = 1
""",
    11: """
-- 11, user sessions: how many bids each bidder made between pauses of 10 s
SELECT bidder, count(*) AS bid_count, session_window.start AS starttime, session_window.end AS endtime
FROM bid
GROUP BY bidder, session_window(dateTime, '10 seconds')
""",
    # As if every bid were processed when it was made.
    12: in_processing_time("dateTime"),
    13: """
-- 13, bounded side input join: bids with the value that a table of 10,000 rows has for them
SELECT B.auction, B.bidder, B.price, B.dateTime, S.value
FROM bid AS B JOIN (SELECT id AS key, CAST(id AS STRING) AS value FROM range(10000)) AS S
ON B.auction % 10000 = S.key
""",
    14: """
-- 14, calculation: bids in a range of prices, with the time of day and how often "c" is in their text
SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price,
    CASE
        WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END AS bidTimeType,
    dateTime, extra, CAST(length(extra) - length(replace(extra, 'c', '')) AS BIGINT) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
""",
    15: f"""
-- 15, bidding statistics: bids, bidders and auctions per day, by how high the bids are
SELECT {_DAY} AS day,{_STATISTICS}{_DISTINCT}
FROM bid GROUP BY {_DAY}
""",
    16: f"""
-- 16, channel statistics: the same per channel and day, with the minute of the last bid
SELECT channel, {_DAY} AS day, max(date_format(dateTime, 'HH:mm')) AS minute,{_STATISTICS}{_DISTINCT}
FROM bid GROUP BY channel, {_DAY}
""",
    17: f"""
-- 17, auction statistics: bids per auction and day, with their prices (the average a double)
SELECT auction, {_DAY} AS day,{_STATISTICS},
    min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price,
    sum(price) AS sum_price
FROM bid GROUP BY auction, {_DAY}
""",
    18: f"""
-- 18, last bid: of each bidder in each auction
SELECT auction, bidder, price, channel, url, dateTime, extra
FROM (
    SELECT *, row_number() OVER (
        PARTITION BY bidder, auction ORDER BY dateTime DESC, {BID_TIES}
    ) AS place
    FROM bid
)
WHERE place = 1
""",
    19: f"""
-- 19, top 10: of each auction the highest bids (of equal ones the earlier), with their rank
SELECT auction, bidder, price, channel, url, dateTime, extra, rank_number
FROM (
    SELECT *, CAST(row_number() OVER (
        PARTITION BY auction ORDER BY price DESC, dateTime, {BID_TIES}
    ) AS BIGINT) AS rank_number
    FROM bid
)
WHERE rank_number <= 10
""",
    20: """
-- 20, expand bid with auction: bids for auctions of category 10, with all that is known of these
SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
    A.itemName, A.description, A.initialBid, A.reserve, A.dateTime AS auction_dateTime, A.expires,
    A.seller, A.category, A.extra AS auction_extra
FROM bid AS B JOIN auction AS A ON B.auction = A.id
WHERE A.category = 10
""",
}
"""The text of each query by its number."""
