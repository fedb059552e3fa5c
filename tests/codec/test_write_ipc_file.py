"""`write_ipc_file`: whole and under its name, or not there at all."""

import multiprocessing
import resource

import pyarrow as pa
import pytest
from fastkcl import _core


def batch(records: int, payload: bytes = b"payload") -> _core.RecordBatch:
    line = _core.encode_process_records(
        [payload] * records, ["k"] * records, [str(i) for i in range(records)], None, [1_700_000_000_123] * records
    )
    message = _core.decode_line(line)
    assert isinstance(message, _core.ProcessRecords)
    return message.batch


def test_pyarrow_reads_it(tmp_path):
    batches = [batch(3), batch(0), batch(10).slice(4, 3)]
    path = tmp_path / "letter.arrow"
    _core.write_ipc_file(str(path), batches, {"shardId": "shardId-0", "traceback": "Zeile\nünïcode"})
    with pa.ipc.open_file(path) as file:
        table = file.read_all()
    expected = pa.Table.from_batches([pa.record_batch(each) for each in batches])
    assert table.equals(expected)
    assert table.schema.metadata == {b"shardId": b"shardId-0", b"traceback": "Zeile\nünïcode".encode()}
    assert [entry.name for entry in tmp_path.iterdir()] == ["letter.arrow"]


def test_no_batches(tmp_path):
    path = tmp_path / "letter.arrow"
    _core.write_ipc_file(str(path), [], {})
    with pa.ipc.open_file(path) as file:
        assert file.num_record_batches == 0
        assert file.schema == pa.record_batch(batch(1)).schema


def test_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _core.write_ipc_file("letter.arrow", [batch(1)], {})
    assert [entry.name for entry in tmp_path.iterdir()] == ["letter.arrow"]


def test_nothing_is_overwritten(tmp_path):
    path = tmp_path / "letter.arrow"
    path.write_bytes(b"first")
    with pytest.raises(FileExistsError) as caught:
        _core.write_ipc_file(str(path), [batch(1)], {})
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["letter.arrow"]


@pytest.mark.parametrize(
    ("name", "error"),
    [("missing/letter.arrow", FileNotFoundError), ("file/letter.arrow", NotADirectoryError), ("/", IsADirectoryError)],
)
def test_paths_that_cannot_be(tmp_path, name, error):
    (tmp_path / "file").touch()
    with pytest.raises(error):
        _core.write_ipc_file(str(tmp_path / name), [batch(1)], {})


def write_with_little_room(path, answers):
    """In a process of its own: the limit on file sizes cannot be raised again."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    try:
        _core.write_ipc_file(path, [batch(100, bytes(1000))], {})
    except OSError as error:
        answers.put((error.errno, error.filename))
    else:
        answers.put(None)


def test_a_write_that_fails_leaves_nothing(tmp_path):
    """As on a full disk: the error has its errno, and no half of a file stays under any name."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    path = str(tmp_path / "letter.arrow")
    process = context.Process(target=write_with_little_room, args=(path, answers))
    process.start()
    answer = answers.get(timeout=60)
    process.join()
    assert answer == (27, path)  # EFBIG
    assert list(tmp_path.iterdir()) == []
