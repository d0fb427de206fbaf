"""What the Parquet sink refuses before anything is changed."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.checkpoint.entry import StagedOutput
from holdfast.errors import ConfigurationError, InputError
from holdfast.sinks import SinkContext, parquet

MakeContext = Callable[..., SinkContext]
Stage = Callable[..., StagedOutput]


@pytest.mark.parametrize("url", ["s3://bucket/out", "hdfs:/out", "abfss://a@b/out", ""])
def test_places_that_are_not_local(make_context: MakeContext, url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"not a local folder.*What to do: .*path"):
        parquet(url).validate(make_context(0))


@pytest.mark.parametrize("url", ["{}/out\udcff", "file://{}/out%FF"])
def test_names_that_are_no_utf8(make_context: MakeContext, tmp_path: Path, url: str) -> None:
    """Only the first task that wrote would find out, and no checkpoint could say where the sink writes."""
    with pytest.raises(ConfigurationError, match=r"out.udcff is no UTF-8"):
        parquet(url.format(tmp_path)).validate(make_context(0))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheme", ["file", "FILE"])
def test_file_urls_are_paths(make_context: MakeContext, tmp_path: Path, scheme: str) -> None:
    sink = parquet(f"{scheme}://{tmp_path}/my%20out")
    sink.open(make_context())
    assert [p.name for p in tmp_path.iterdir()] == ["my out"]
    assert sink.describe() == f"parquet files in {tmp_path}/my out"


def test_relative_paths_do_not_follow_the_working_folder(
    make_context: MakeContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sink = parquet("out")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    sink.open(make_context())
    assert (tmp_path / "out" / "_holdfast").is_dir()


@pytest.mark.parametrize("below", ["", "deep/er"])
def test_a_file_in_the_way(make_context: MakeContext, tmp_path: Path, below: str) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(ConfigurationError, match=f"{tmp_path}/out is not a folder"):
        parquet(tmp_path / "out" / below).validate(make_context(0))


@pytest.mark.parametrize("below", ["", "new/er"])
def test_no_permission_to_write(below: str) -> None:
    # In a process that gives up root's rights, since nothing is forbidden to root.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        program = f"""
import os, pyarrow as pa
from holdfast.sinks import SinkContext, parquet
from holdfast.storage import open_storage
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    context = SinkContext("p", "s", 0, open_storage("memory://x"), pa.schema([("a", "int64")]), ())
    parquet({str(Path(folder, below))!r}).validate(context)
except Exception as error:
    print(type(error).__name__, error)
"""
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
    assert done.stdout.startswith(f"ConfigurationError {folder} can't be written to")
    assert "permission" in done.stdout


def test_what_only_shells_expand(make_context: MakeContext) -> None:
    with pytest.raises(ConfigurationError, match=r"expanduser\('~/out'\)"):
        parquet("~/out").validate(make_context())


@pytest.mark.parametrize("other", [{"pipeline": "ebb"}, {"sink": "sink-1"}])
def test_a_folder_of_another_pipeline_or_sink(
    make_context: MakeContext, tmp_path: Path, other: dict[str, str]
) -> None:
    parquet(tmp_path / "out").open(make_context())
    for claim in (0, 1):
        with pytest.raises(ConfigurationError, match="belongs to sink 'sink-0' of pipeline 'tide'"):
            parquet(tmp_path / "out").validate(make_context(claim, **other))
    with pytest.raises(ConfigurationError, match="belongs to"):
        parquet(tmp_path / "out").open(make_context(1, **other))
    parquet(tmp_path / "out").validate(make_context(2))


@pytest.mark.parametrize("name", ["epoch=0", "epoch-0000000000.parquet"])
def test_a_folder_with_epochs_of_nobody(
    make_context: MakeContext, tmp_path: Path, name: str
) -> None:
    (tmp_path / "out" / name).mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="already holds epochs"):
        parquet(tmp_path / "out").validate(make_context(0))


def test_a_broken_marker(make_context: MakeContext, tmp_path: Path) -> None:
    (tmp_path / "out" / "_holdfast").mkdir(parents=True)
    (tmp_path / "out" / "_holdfast" / "pipeline.json").write_text('{"pipeline": 5}')
    with pytest.raises(ConfigurationError, match=r"pipeline\.json can't be read"):
        parquet(tmp_path / "out").validate(make_context(0))


@pytest.mark.parametrize("name", [".", "staged", "publishing", "intents", "removing"])
def test_links_out_of_the_folder(make_context: MakeContext, tmp_path: Path, name: str) -> None:
    """Readers who may take epochs away could else have any file of the writer's deleted."""
    own, outside = tmp_path / "out" / "_holdfast" / name, tmp_path / "home"
    outside.mkdir()
    own.parent.mkdir(parents=True)
    own.symlink_to(outside)
    with pytest.raises(ConfigurationError, match="is a symbolic link"):
        parquet(tmp_path / "out").validate(make_context(0))


@pytest.mark.parametrize("column", [None, "epoch"])
def test_a_marker_with_a_flipped_bit(
    make_context: MakeContext, tmp_path: Path, column: str | None
) -> None:
    """The name of a field, above all: without it the folder would get another form."""
    parquet(tmp_path / "out", epoch_column=column).open(make_context())
    marker = tmp_path / "out" / "_holdfast" / "pipeline.json"
    whole = marker.read_bytes()
    for at, bit in itertools.product(range(len(whole)), range(8)):
        changed = bytearray(whole)
        changed[at] ^= 1 << bit
        marker.write_bytes(changed)
        with pytest.raises(ConfigurationError):
            parquet(tmp_path / "out", epoch_column=column).validate(make_context(0))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], "no columns"),
        (["word", "epoch"], "'epoch'"),
        (["Epoch"], "'epoch'"),
        (["word", "n", "N"], "'n'.*there are 2"),
    ],
)
def test_columns_that_readers_could_not_tell_apart(
    make_context: MakeContext, tmp_path: Path, names: list[str], words: str
) -> None:
    schema = pa.schema([(name, pa.int64()) for name in names])
    with pytest.raises(InputError, match=words):
        parquet(tmp_path / "out", epoch_column="epoch").validate(make_context(0, schema=schema))


def test_without_an_epoch_column_the_rows_may_have_one(
    make_context: MakeContext, tmp_path: Path
) -> None:
    schema = pa.schema([("epoch", pa.int64())])
    parquet(tmp_path / "out").validate(make_context(0, schema=schema))


@pytest.mark.parametrize("column", ["", "_epoch", "a=b", "a/b", "the epoch"])
def test_an_epoch_column_that_is_no_folders_name(
    make_context: MakeContext, tmp_path: Path, column: str
) -> None:
    with pytest.raises(InputError, match="epoch_column can't be"):
        parquet(tmp_path / "out", epoch_column=column).validate(make_context(0))


@pytest.mark.parametrize(("first", "then"), [(None, "epoch"), ("epoch", None), ("epoch", "tide")])
def test_a_folder_keeps_the_form_in_which_it_was_begun(
    make_context: MakeContext, tmp_path: Path, first: str | None, then: str | None
) -> None:
    parquet(tmp_path / "out", epoch_column=first).open(make_context())
    with pytest.raises(
        ConfigurationError, match=f"begun with epoch_column={first!r}, not {then!r}"
    ):
        parquet(tmp_path / "out", epoch_column=then).validate(make_context(0))
    parquet(tmp_path / "out", epoch_column=first).validate(make_context(0))


def test_staging_says_that_the_folder_must_be_shared(
    make_context: MakeContext, tmp_path: Path, stage: Stage
) -> None:
    sink = parquet(tmp_path / "out")
    sink.open(make_context())
    (tmp_path / "out").rename(tmp_path / "on another host")
    with pytest.raises(Exception, match="executors all see this folder"):
        stage(sink, 0, 0, ("kelp", 1))
