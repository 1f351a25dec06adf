"""Folders of a node: where things lie and how files are replaced."""

import errno
import tempfile
import threading
from pathlib import Path

import pytest

from blockyard.core.errors import ConfigurationError, DiskFullError, ForeignFileError
from blockyard.runtime.node_folder import NodeFolder, ServiceName, replace_file, unusable
from blockyard.runtime.settings import G3Section, NodeSection, NodeSettings


@pytest.fixture
def node(tmp_path: Path) -> NodeFolder:
    return NodeFolder(tmp_path / "node")


def test_every_service_has_its_files_below_the_node_folder(tmp_path: Path) -> None:
    node = NodeFolder.of(NodeSettings(node=NodeSection(folder=tmp_path)))
    for name in ServiceName:
        folder = node.service(name)
        assert folder.path == tmp_path / name.value
        assert {folder.lock.name, folder.epoch.name, folder.http.name, folder.socket.name} == {
            "lock",
            "epoch",
            "http.json",
            "channel.sock",
        }


def test_slabs_lie_below_the_node_folder_unless_settings_say_otherwise(tmp_path: Path) -> None:
    plain = NodeSettings(node=NodeSection(folder=tmp_path))
    other = NodeSettings(node=NodeSection(folder=tmp_path), g3=G3Section(folder=tmp_path / "disk"))
    assert NodeFolder.of(plain).slabs(plain) == tmp_path / "g3"
    assert NodeFolder.of(other).slabs(other) == tmp_path / "disk"


def test_the_id_is_made_once_and_stays(node: NodeFolder) -> None:
    first = node.identify()
    assert len(first) == 32
    assert NodeFolder(node.path).identify() == first
    assert [entry.name for entry in node.path.iterdir()] == ["id"]


def test_an_id_that_cannot_be_read_is_named(node: NodeFolder) -> None:
    (node.path / "id").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="directory"):
        node.identify()


def test_processes_that_start_together_agree_on_the_id(node: NodeFolder) -> None:
    found: list[str] = []
    gate = threading.Barrier(8)

    def start() -> None:
        gate.wait()
        found.append(node.identify())

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_an_id_file_of_somebody_else_is_refused(node: NodeFolder) -> None:
    node.identify()
    (node.path / "id").write_text("not an id")
    with pytest.raises(ForeignFileError):
        node.identify()


def test_the_folder_is_private(node: NodeFolder) -> None:
    folder = node.service(ServiceName.BLOCK_MANAGER)
    folder.create()
    assert folder.path.stat().st_mode & 0o077 == 0


def test_a_file_in_the_place_of_the_folder_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "node").write_text("")
    with pytest.raises(ConfigurationError, match=r"node\.folder"):
        NodeFolder(tmp_path / "node").service(ServiceName.BLOCK_MANAGER).create()


def test_the_http_address_is_there_while_it_is_written(node: NodeFolder) -> None:
    folder = node.service(ServiceName.REMOTE_TIER)
    folder.create()
    assert folder.read_http() is None
    folder.write_http("http://127.0.0.1:80")
    assert folder.read_http() == "http://127.0.0.1:80"
    folder.remove_http()
    folder.remove_http()
    assert folder.read_http() is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "7"])
def test_an_address_file_of_somebody_else_is_refused(node: NodeFolder, text: str) -> None:
    folder = node.service(ServiceName.REMOTE_TIER)
    folder.create()
    folder.http.write_text(text)
    with pytest.raises(ForeignFileError):
        folder.read_http()


def test_replacing_leaves_no_other_file_behind(tmp_path: Path) -> None:
    for text in (b"first", b"second"):
        replace_file(tmp_path / "file", text)
        assert (tmp_path / "file").read_bytes() == text
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_failed_replacement_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.mkdir()
    with pytest.raises(ConfigurationError):
        replace_file(target, b"new")
    assert target.is_dir()
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_full_disk_is_said_to_be_full_not_wrongly_set(node: NodeFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = node.service(ServiceName.BLOCK_MANAGER)
    folder.create()
    monkeypatch.setattr(tempfile, "mkstemp", full)
    for attempt in (lambda: replace_file(folder.epoch, b"1"), node.identify):
        with pytest.raises(DiskFullError, match=r"No space left on device.*Free space"):
            attempt()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_folder_that_may_not_be_written_is_told_so(tmp_path: Path, number: int) -> None:
    error = unusable(tmp_path, OSError(number, "no"))
    assert error.fields["key"] == "node.folder"
    assert "make it writable for the user of this process, or let node.folder name another one" in str(error)


def test_a_folder_with_something_in_its_place_is_not_called_read_only(tmp_path: Path) -> None:
    error = unusable(tmp_path, OSError(errno.ENOTDIR, "not a folder"))
    assert "let node.folder name another one" in str(error)
    assert "writable" not in str(error)
