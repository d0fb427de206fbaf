"""Session analytics on columns: a ``BatchProcess`` with NumPy.

A session of a user is a series of page views with less than half an hour between two of them. All
users of an epoch are worked on at once; there is no Python per user or per view.
"""

import random
from datetime import datetime, timedelta

import numpy as np

import holdfast as hf
from common import print_table, session, work_folder, write_file

GAP = np.timedelta64(30, "m")


class Sessions(hf.BatchProcess):
    """Puts out every session that a view was added to; the newest row of a session counts."""

    output = "user string, began timestamp, ended timestamp, views long"

    began = hf.ValueState("timestamp")
    ended = hf.ValueState("timestamp")
    views = hf.ValueState("long", default=0)

    def process(self, batch):
        # Rows come key after key; within a key in the order of their files, not of time.
        owner = np.repeat(np.arange(len(batch.counts)), batch.counts)
        time = batch.rows["ts"].to_numpy()
        time = time[np.lexsort((time, owner))]
        began, ended, views = (batch.state[n].to_numpy() for n in ("began", "ended", "views"))

        # A view begins a session if the one before, maybe in an earlier epoch, is too far away;
        # for new users ``ended`` is NaT, which is never within the gap.
        firsts = batch.offsets[:-1]
        before = np.roll(time, 1)
        before[firsts] = ended
        begins = ~(time - before < GAP)

        # A piece is what this epoch has of a session: all of it, or the continuation of one.
        is_first = np.zeros(len(time), bool)
        is_first[firsts] = True
        starts = np.flatnonzero(begins | is_first)
        ends = np.append(starts[1:], len(time))
        user, continues = owner[starts], ~begins[starts]
        piece_began = np.where(continues, began[user], time[starts])
        piece_ended = time[ends - 1]
        piece_views = ends - starts + np.where(continues, views[user], 0)

        last = np.append(user[1:] != user[:-1], True)
        return hf.BatchResult(
            state={
                "began": piece_began[last],
                "ended": piece_ended[last],
                "views": piece_views[last],
            },
            rows={
                "user": batch.keys["user"].take(user),
                "began": piece_began,
                "ended": piece_ended,
                "views": piece_views,
            },
        )


def main() -> None:
    with work_folder() as work:
        write_input(work / "views")
        spark = session("sessions")
        views = (
            spark.readStream.schema("user string, ts timestamp")
            .option("maxFilesPerTrigger", 1)
            .json(str(work / "views"))
        )
        out = hf.sinks.memory("sessions")
        query = (
            hf.stream(views)
            .key_by("user")
            .process(Sessions())
            .write_to(out)
            .start("sessions", work / "checkpoint", trigger="available-now")
        )
        query.await_termination()

        # Newest row per session: later epochs come later.
        found = list({(row["user"], row["began"]): row for row in out.rows()}.values())
        for row in found:
            row["minutes"] = (row["ended"] - row["began"]) / timedelta(minutes=1)
        count = len(found)
        summary = {
            "users": len({row["user"] for row in found}),
            "sessions": count,
            "views": sum(row["views"] for row in found),
            "mean views": sum(row["views"] for row in found) / count,
            "mean minutes": sum(row["minutes"] for row in found) / count,
        }
        print_table("All sessions", [summary])
        longest = sorted(found, key=lambda row: (-row["minutes"], row["user"]))
        print_table("The longest five", longest[:5])
        spark.stop()


def write_input(folder):
    """A day of 200 users who come back now and then, in four files of six hours each."""
    chance = random.Random(7)
    midnight = datetime(2026, 1, 1)
    files = [[], [], [], []]
    for user in range(200):
        minute = chance.random() * 300
        while minute < 24 * 60:
            ts = midnight + timedelta(minutes=minute)
            row = {"user": f"user-{user:03}", "ts": ts.isoformat() + "Z"}
            files[int(minute // 360)].append(row)
            # Mostly the next page, at times lunch.
            minute += chance.random() * (10 if chance.random() < 0.9 else 400)
    for number, rows in enumerate(files):
        write_file(folder, number, rows)


if __name__ == "__main__":
    main()
