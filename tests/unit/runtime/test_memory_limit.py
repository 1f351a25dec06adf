"""Memory limits of control groups, as containers of both generations show them."""

from pathlib import Path

import pytest

from blockyard.runtime.memory_limit import MemoryLimit, memory_limit

UNLIMITED = "9223372036854771712"
V2_MOUNT = "30 23 0:26 {first} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNT = "35 31 0:32 {first} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
OTHERS = "22 28 0:20 / /proc rw - proc proc rw\n34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\nbroken line"


class Machine:
    """A tree of files as the kernel shows them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._process = root / "proc/self"
        self._process.mkdir(parents=True)
        self.write("sys/fs/cgroup/README", "")

    def write(self, path: str, text: str) -> None:
        file = self._root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def group(self, line: str, mount: str, first: str = "/") -> None:
        self.write("proc/self/cgroup", f"3:cpu,cpuacct:/other\n{line}\n1:name=systemd:/init")
        self.write("proc/self/mountinfo", f"{OTHERS}\n{mount.format(first=first)}")

    def limit(self) -> int | None:
        found = memory_limit(self._process, self._root)
        return None if found is None else found.bytes


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# --- second generation ------------------------------------------------------------------------------------------------
def test_a_container_with_a_view_of_its_own_has_its_limit_at_the_top(machine: Machine, tmp_path: Path) -> None:
    machine.group("0::/", V2_MOUNT)
    machine.write("sys/fs/cgroup/memory.max", "536870912")
    assert machine.limit() == 512 << 20
    found = memory_limit(tmp_path / "proc/self", tmp_path)
    assert found == MemoryLimit(512 << 20, tmp_path / "sys/fs/cgroup/memory.max")


def test_no_limit_is_spelled_max(machine: Machine) -> None:
    machine.group("0::/", V2_MOUNT)
    machine.write("sys/fs/cgroup/memory.max", "max")
    assert machine.limit() is None


def test_the_least_limit_of_all_groups_around_holds(machine: Machine) -> None:
    machine.group("0::/kubepods.slice/pod7.slice/worker.scope", V2_MOUNT)
    machine.write("sys/fs/cgroup/kubepods.slice/pod7.slice/worker.scope/memory.max", "max")
    machine.write("sys/fs/cgroup/kubepods.slice/pod7.slice/memory.max", "1000000")
    machine.write("sys/fs/cgroup/kubepods.slice/memory.max", "9000000")
    assert machine.limit() == 1_000_000
    machine.write("sys/fs/cgroup/kubepods.slice/pod7.slice/worker.scope/memory.max", "500000")
    assert machine.limit() == 500_000


def test_a_neighbouring_group_does_not_count(machine: Machine) -> None:
    machine.group("0::/a", V2_MOUNT)
    machine.write("sys/fs/cgroup/ab/memory.max", "1")
    machine.write("sys/fs/cgroup/a/b/memory.max", "1")
    assert machine.limit() is None


# --- first generation -------------------------------------------------------------------------------------------------
def test_the_first_generation_has_the_limit_with_its_controller(machine: Machine) -> None:
    machine.group("9:memory:/docker/abc", V1_MOUNT, first="/docker/abc")
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456")
    assert machine.limit() == 256 << 20


def test_no_limit_is_a_very_large_number(machine: Machine) -> None:
    machine.group("9:memory:/", V1_MOUNT)
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", UNLIMITED)
    assert machine.limit() is None


def test_a_limit_of_a_group_that_cannot_be_seen_is_told_by_the_own_one(machine: Machine) -> None:
    machine.group("9:blkio,memory:/docker/abc", V1_MOUNT, first="/docker/abc")
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", UNLIMITED)
    machine.write(
        "sys/fs/cgroup/memory/memory.stat", f"cache 1\nhierarchical_memory_limit 77777\ntotal_cache {UNLIMITED}"
    )
    assert machine.limit() == 77_777


def test_a_machine_with_both_generations_obeys_the_one_that_limits(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "4:memory:/a/b\n0::/")
    machine.write("proc/self/mountinfo", "\n".join(mount.format(first="/") for mount in (V1_MOUNT, V2_MOUNT)))
    machine.write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "4096")
    assert machine.limit() == 4_096


# --- odd views --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("group", ["/../../other", "/elsewhere"])
def test_a_group_that_lies_outside_of_the_mount_is_taken_for_its_top(machine: Machine, group: str) -> None:
    machine.group(f"0::{group}", V2_MOUNT, first="/pod")
    machine.write("sys/fs/cgroup/memory.max", "4096")
    assert machine.limit() == 4_096


def test_a_place_with_a_space_is_found(machine: Machine) -> None:
    machine.group("0::/", V2_MOUNT.replace("/sys/fs/cgroup", "/my\\040groups"))
    machine.write("my groups/memory.max", "4096")
    assert machine.limit() == 4_096


@pytest.mark.parametrize("text", ["", "many", "-1", "12.5", "\u0664"])
def test_what_is_no_number_is_no_limit(machine: Machine, text: str) -> None:
    machine.group("0::/", V2_MOUNT)
    machine.write("sys/fs/cgroup/memory.max", text)
    assert machine.limit() is None


@pytest.mark.parametrize("text", ["", "0", "0:", "::", "\x00\xff"])
def test_what_cannot_be_understood_is_no_limit(machine: Machine, text: str) -> None:
    machine.write("proc/self/cgroup", text)
    machine.write("proc/self/mountinfo", text)
    assert machine.limit() is None


def test_a_machine_that_shows_nothing_has_no_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path / "proc/self", tmp_path) is None


def test_this_machine_can_be_asked() -> None:
    found = memory_limit()
    assert found is None or found.bytes > 0
