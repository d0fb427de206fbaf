"""``hdfs_program.py write|read URL PATH BYTES``: on a host of the lab, as a program there would."""

from __future__ import annotations

import sys

from hdfs_native import Client, WriteOptions

verb, url, path, size = sys.argv[1:]
client = Client(url)
if verb == "write":
    with client.create(path, WriteOptions(replication=1)) as file:
        file.write(bytes(int(size)))
else:
    with client.read(path) as file:
        assert len(file.read()) == int(size)
