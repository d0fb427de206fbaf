"""A shopping cart: event-time timers, a map with a time to live, side outputs.

A cart is abandoned when nothing has happened to it for half an hour. Its owner still finds it as it
was when coming back, up to a week later; after that it is forgotten.
"""

from datetime import timedelta

import holdfast as hf
from common import print_table, session, work_folder, write_file

HALF_AN_HOUR = timedelta(minutes=30)


class Cart(hf.KeyedProcess):
    """Puts out orders, and abandoned carts beside them."""

    output = "user string, ordered timestamp, items map<string,int>"
    side_outputs = {"abandoned": "user string, since timestamp, items map<string,int>"}

    items = hf.MapState("string", "int", ttl="7 days", ttl_clock="event")

    def process(self, key, rows, ctx):
        for row in rows:
            if row.action == "add":
                self.items[row.sku] = self.items.get(row.sku, 0) + 1
            elif row.action == "remove":
                self.items.pop(row.sku)
            elif row.action == "buy":
                yield {"user": key.user, "ordered": row.ts, "items": dict(self.items.items())}
                self.items.clear()
        for timer in ctx.timers.list():
            ctx.timers.delete(timer)
        if self.items:
            ctx.timers.set(rows[-1].ts + HALF_AN_HOUR)

    def on_timer(self, key, when, ctx):
        items = dict(self.items.items())
        ctx.side_output(
            "abandoned", {"user": key.user, "since": when - HALF_AN_HOUR, "items": items}
        )


def main() -> None:
    with work_folder() as work:
        write_input(work / "events")
        spark = session("shopping_cart")
        events = (
            spark.readStream.schema("user string, action string, sku string, ts timestamp")
            .option("maxFilesPerTrigger", 1)
            .json(str(work / "events"))
        )
        orders = hf.sinks.memory("orders")
        abandoned = hf.sinks.memory("abandoned")
        late = hf.sinks.memory("late")
        query = (
            hf.stream(events)
            .with_watermark("ts", "5 minutes")
            .key_by("user")
            .process(Cart())
            .write_to(orders, abandoned=abandoned, late=late)
            .start("shopping_cart", work / "checkpoint")
        )
        query.process_all_available()
        query.stop()
        print_table("Orders", orders.rows())
        print_table("Abandoned carts", abandoned.rows())
        print_table("Too late to count", late.rows())
        spark.stop()


def write_input(folder):
    """Each list is a file, and so an epoch. The watermark is where the files before have moved it."""
    files = [
        ["01T10:00 ann add kelp", "01T10:02 ann add rope", "01T10:04 bob add rock"],
        ["01T10:15 ann add kelp", "01T10:20 cid add salt"],
        ["01T10:25 ann remove rope", "01T10:26 ann buy"],
        ["01T11:10 dee add rope"],
        # The watermark is 11:05: bob's and cid's carts are abandoned, and bob's row is too late.
        ["01T10:10 bob add salt", "01T11:12 dee add kelp"],
        # Bob comes back the next morning, and his rock is there.
        ["02T09:00 bob add kelp", "02T09:01 bob buy"],
        ["10T08:00 eve look"],
        # The watermark is in January 10: cid's salt of January 1 is forgotten.
        ["10T09:00 cid add rope", "10T09:05 cid buy"],
    ]
    for number, lines in enumerate(files):
        rows = []
        for line in lines:
            time, user, action, *sku = line.split()
            ts = f"2026-01-{time}:00Z"
            rows.append({"user": user, "action": action, "sku": sku[0] if sku else None, "ts": ts})
        write_file(folder, number, rows)


if __name__ == "__main__":
    main()
