import os
import subprocess
import sys
from pathlib import Path

from bench.kit import proc
from bench.kit.harness import end_tree, sweep
from bench.kit.sampling import Sample, Sampler, Written, group_of

_PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); input()"],
                         stdin=subprocess.PIPE, start_new_session=True)
child.wait()
"""


def test_ending_a_tree_ends_what_its_processes_started_in_sessions_of_their_own() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        below = proc.tree(parent.pid)
        assert [p.parent for p in below] == [os.getpid(), parent.pid]
        end_tree(parent.pid)
        # The pipe closes when its last holder, the grandchild, is gone.
        assert parent.stdout.read() == ""
        assert parent.wait() < 0


def test_what_a_killed_harness_left_is_swept_and_what_a_live_one_uses_is_not(
    tmp_path: Path,
) -> None:
    mine, dead = tmp_path / f"work-{os.getpid()}", tmp_path / f"work-{2**30}"
    mine.mkdir()
    dead.mkdir()
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == [mine]


def test_a_process_table_entry_is_read_whatever_the_name() -> None:
    fields = ["S", "3", *(str(n) for n in range(5, 53))]
    process = proc.parse_stat(f"7 (a) (b) {' '.join(fields)}")
    assert (process.pid, process.parent, process.name) == (7, 3, "a) (b")


def test_memory_of_this_process_is_known_and_of_none_is_zero() -> None:
    resident, anonymous = proc.memory_of(os.getpid())
    assert resident >= anonymous > 0
    assert proc.memory_of(2**30) == (0, 0)


def test_deleted_objects_count_as_written_and_unfinished_ones_do_not(tmp_path: Path) -> None:
    written = Written(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a").write_bytes(b"12345")
    (tmp_path / ".half.tmp").write_bytes(b"123")
    written.look()
    (tmp_path / "runs" / "a").unlink()
    (tmp_path / "log").write_bytes(b"1")
    written.look()
    assert written.total("runs/") == 5
    assert written.total() == 6


def test_cpu_time_is_interpolated_between_samples_and_split_from_that_of_others(
    tmp_path: Path,
) -> None:
    sampler = Sampler(2**30, tmp_path)
    sampler.stop()
    sampler.samples = [Sample(0.0, {"jvm": 0.0}, 100.0), Sample(10.0, {"jvm": 5.0}, 115.0)]
    assert sampler.cpu_between(2.0, 4.0) == {"jvm": 1.0, "others": 2.0}


def test_memory_is_told_apart_by_whose_it_is() -> None:
    assert group_of(proc.Process(1, 0, "python", 0.0), root=1) == "driver"
    assert group_of(proc.Process(2, 1, "java", 0.0), root=1) == "jvm"
    assert group_of(proc.Process(3, 2, "python", 0.0), root=1) == "workers"
    assert group_of(proc.Process(4, 2, "stream executio", 0.0), root=1) == "other"
