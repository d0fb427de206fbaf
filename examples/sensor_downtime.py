"""Sensor down-time: a PySpark ``StatefulProcessor``, moved over unchanged.

A sensor that has sent nothing for ten minutes is down. ``DownTime`` is written for PySpark's own
``transformWithState``, and knows nothing of Holdfast; with ``--plain`` the same class, and the same
call, run on Spark alone and print the same (Spark's own ``transformWithState`` needs protobuf).
"""

import sys
from datetime import datetime, timezone

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

import holdfast as hf
from common import print_table, session, work_folder, write_file

TEN_MINUTES_MS = 600_000


class DownTime(StatefulProcessor):
    """Puts out when a sensor goes down, and when it is up again."""

    def init(self, handle):
        self.handle = handle
        self.seen = handle.getValueState("seen", "at_ms long, down boolean")

    def handleInputRows(self, key, rows, timerValues):
        times = sorted(int(row.ts.timestamp() * 1000) for row in rows)
        if self.seen.exists():
            before, was_down = self.seen.get()
            if was_down:
                yield self.event(key, "up", times[0], (times[0] - before) / 60_000)
        for timer in self.handle.listTimers():
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(times[-1] + TEN_MINUTES_MS)
        self.seen.update((times[-1], False))

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        at, _ = self.seen.get()
        self.seen.update((at, True))
        yield self.event(key, "down", at)

    def event(self, key, event, ms, minutes=None):
        at = datetime.fromtimestamp(ms / 1000, timezone.utc)
        return Row(sensor=key[0], event=event, at=at, minutes=minutes)

    def close(self):
        pass


def down_time(readings):
    return readings.groupBy("sensor").transformWithState(
        statefulProcessor=DownTime(),
        outputStructType="sensor string, event string, at timestamp, minutes double",
        outputMode="Update",
        timeMode="EventTime",
    )


def main() -> None:
    with work_folder() as work:
        write_input(work / "readings")
        spark = session("sensor_downtime")
        readings = (
            spark.readStream.schema("sensor string, ts timestamp, celsius double")
            .option("maxFilesPerTrigger", 1)
            .json(str(work / "readings"))
            .withWatermark("ts", "2 minutes")
        )
        run = on_spark if "--plain" in sys.argv else on_holdfast
        print_table("Down-times", run(readings, work / "checkpoint"))
        spark.stop()


def on_holdfast(readings, checkpoint):
    events = hf.sinks.memory("events")
    query = down_time(hf.stream(readings)).write_to(events).start("sensor_downtime", checkpoint)
    query.process_all_available()
    query.stop()
    return events.rows()


def on_spark(readings, checkpoint):
    spark = readings.sparkSession
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    events = []
    query = (
        down_time(readings)
        .writeStream.foreachBatch(lambda df, epoch: events.extend(df.collect()))
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    query.processAllAvailable()
    query.stop()
    return [row.asDict() for row in events]


def write_input(folder):
    """Each line is a file, and so an epoch: when, and which sensors sent something."""
    files = ["10:00 abc", "10:05 abc", "10:10 ab", "10:20 ab", "10:25 ab"]
    files += ["10:30 ac", "10:40 ac", "10:45 ac", "10:50 abc", "10:55 ab"]
    for number, line in enumerate(files):
        time, sensors = line.split()
        ts = f"2026-01-01T{time}:00Z"
        rows = [{"sensor": f"sensor-{s}", "ts": ts, "celsius": 20.0 + number} for s in sensors]
        write_file(folder, number, rows)


if __name__ == "__main__":
    main()
