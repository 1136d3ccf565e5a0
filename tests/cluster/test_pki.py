"""Certificates: who they name, whom they are for, and that one authority signed them all."""

import datetime
import ipaddress
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from e2e.cluster.pki import CLIENTS, write_pki


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster") / "pki"
    write_pki(folder)
    return folder


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def subject(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(oid)]


def test_every_certificate_is_signed_by_the_authority(pki: Path) -> None:
    authority = load(pki / "ca.crt")
    for path in pki.glob("*.crt"):
        load(path).verify_directly_issued_by(authority)


def test_kubelet_is_the_node_it_registers(pki: Path) -> None:
    kubelet = load(pki / "kubelet.crt")
    assert subject(kubelet, NameOID.COMMON_NAME) == ["system:node:pagefleet-node"]
    assert subject(kubelet, NameOID.ORGANIZATION_NAME) == ["system:nodes"]


def test_only_admin_and_api_server_are_masters(pki: Path) -> None:
    masters = {
        client.name
        for client in CLIENTS
        if "system:masters" in subject(load(pki / f"{client.name}.crt"), NameOID.ORGANIZATION_NAME)
    }
    assert masters == {"admin", "apiserver-kubelet"}


def test_api_server_is_reached_by_service_and_node_address(pki: Path) -> None:
    extension = load(pki / "apiserver.crt").extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    addresses = extension.value.get_values_for_type(x509.IPAddress)
    assert ipaddress.ip_address("10.96.0.1") in addresses
    assert ipaddress.ip_address("10.200.0.1") in addresses
    assert "kubernetes.default.svc" in extension.value.get_values_for_type(x509.DNSName)


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("apiserver", ExtendedKeyUsageOID.SERVER_AUTH),
        ("kubelet-server", ExtendedKeyUsageOID.SERVER_AUTH),
        ("kubelet", ExtendedKeyUsageOID.CLIENT_AUTH),
        ("admin", ExtendedKeyUsageOID.CLIENT_AUTH),
    ],
)
def test_servers_and_clients_cannot_be_swapped(
    pki: Path, name: str, usage: x509.ObjectIdentifier
) -> None:
    extension = load(pki / f"{name}.crt").extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    assert list(extension.value) == [usage]


def test_certificates_are_valid_now_even_if_a_clock_lags(pki: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    for path in pki.glob("*.crt"):
        certificate = load(path)
        assert certificate.not_valid_before_utc < now - datetime.timedelta(minutes=30)
        assert certificate.not_valid_after_utc > now + datetime.timedelta(days=300)


def test_keys_are_for_their_owner_only(pki: Path) -> None:
    for path in pki.glob("*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
