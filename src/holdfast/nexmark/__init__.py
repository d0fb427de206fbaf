"""The NEXMark benchmark: its events, made by Spark from nothing but numbers, and its queries in batch.

The streams of an online auction (persons, auctions, bids) and 19 queries over them, as the Nexmark
project (https://github.com/nexmark/nexmark) defines them for Flink SQL.
"""

from holdfast.nexmark.generator import Config, auction, batch, bid, events, person, streams
from holdfast.nexmark.oracle import QUERIES

__all__ = ["QUERIES", "Config", "auction", "batch", "bid", "events", "person", "streams"]
