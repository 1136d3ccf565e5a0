"""Going down leaves the machine as it was; coming up works whatever an earlier run left.

These tests take the cluster down. They leave a fresh one, as they found one.
"""

import os
import signal
from collections.abc import Iterator

import pytest

from e2e.cluster import ExternalCluster, LocalCluster, use_cluster
from e2e.cluster.dns import is_available
from e2e.cluster.errors import ComponentCrashed
from e2e.cluster.leftovers import MachineState, leftovers
from e2e.cluster.status import describe
from e2e.cluster.waiting import wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    found = use_cluster()
    if isinstance(found, ExternalCluster):
        pytest.skip("the cluster of KUBECONFIG is its owner's to stop")
    yield found
    found.up()


def kill(cluster: LocalCluster, name: str) -> None:
    record = cluster.processes.record(name)
    assert record is not None and record.is_running, name
    os.kill(record.pid, signal.SIGKILL)
    wait_until(lambda: not record.is_running, what=f"the end of {name}", timeout=10)


def test_down_leaves_the_machine_as_it_was(cluster: LocalCluster) -> None:
    cluster.down()
    before = MachineState.read()
    cluster.up()
    assert is_available(cluster.kubectl)
    cluster.down()
    assert leftovers(cluster.layout) == []
    assert MachineState.read().added_since(before) == []


def test_down_twice_is_no_mistake(cluster: LocalCluster) -> None:
    cluster.down()
    cluster.down()
    assert leftovers(cluster.layout) == []


def test_second_up_changes_nothing(cluster: LocalCluster) -> None:
    cluster.up()
    pids = {name: cluster.processes.record(name) for name in cluster.processes.names()}
    cluster.up()
    assert pids == {name: cluster.processes.record(name) for name in cluster.processes.names()}


@pytest.mark.parametrize("name", ["kube-apiserver", "kubelet", "containerd", "registry"])
def test_up_after_a_crash_starts_clean(cluster: LocalCluster, name: str) -> None:
    cluster.up()
    kill(cluster, name)
    assert not cluster.is_healthy()
    assert f"{name} ended; the end of its log" in describe(cluster, healthy=False)
    with pytest.raises(ComponentCrashed, match=name):
        cluster.processes.check(name)
    cluster.up()
    assert cluster.is_healthy()


def test_down_after_everything_was_killed_leaves_nothing(cluster: LocalCluster) -> None:
    cluster.down()
    before = MachineState.read()
    cluster.up()
    for name in cluster.processes.names():
        kill(cluster, name)
    cluster.down()
    assert leftovers(cluster.layout) == []
    assert MachineState.read().added_since(before) == []


def test_start_that_was_broken_off_is_cleaned_up(cluster: LocalCluster) -> None:
    cluster.down()
    cluster.up_registry()
    cluster.layout.etcd.mkdir(parents=True)
    cluster.layout.pids.joinpath("etcd.json").write_text('{"pid": 999')
    cluster.up()
    assert cluster.is_healthy()
