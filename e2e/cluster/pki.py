"""The cluster's certificates: one authority, one server certificate each, one per client."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from e2e.cluster import layout

LIFETIME = datetime.timedelta(days=365)
CLOCK_SKEW = datetime.timedelta(hours=1)
API_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
)


@dataclass(frozen=True, slots=True)
class Client:
    """Who a client certificate says its holder is."""

    name: str
    common_name: str
    group: str = ""


CLIENTS = (
    Client("admin", "pagefleet-admin", "system:masters"),
    Client("apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters"),
    Client("controller-manager", "system:kube-controller-manager"),
    Client("scheduler", "system:kube-scheduler"),
    Client("kube-proxy", "system:kube-proxy"),
    Client("kubelet", f"system:node:{layout.NODE_NAME}", "system:nodes"),
)


@dataclass(frozen=True, slots=True)
class Authority:
    """The certificate authority that everything in the cluster trusts."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        name = _subject("pagefleet-cluster-ca")
        builder = _builder(name, issuer=name, public_key=key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False
        )
        return cls(certificate=builder.sign(key, hashes.SHA256()), key=key)

    def issue(
        self,
        subject: x509.Name,
        *,
        names: Sequence[str] = (),
        addresses: Sequence[str] = (),
    ) -> tuple[bytes, bytes]:
        """A certificate and its key in PEM; with names or addresses it is a server's."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, issuer=self.certificate.subject, public_key=key.public_key())
        is_server = bool(names or addresses)
        usage = ExtendedKeyUsageOID.SERVER_AUTH if is_server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), False)
        if is_server:
            builder = builder.add_extension(_alternative_names(names, addresses), False)
        certificate = builder.sign(self.key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM), _pem(key)


def write_pki(folder: Path) -> None:
    """Every certificate and key of a new cluster, as NAME.crt and NAME.key."""
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    authority = Authority.create()
    (folder / "ca.crt").write_bytes(authority.certificate.public_bytes(serialization.Encoding.PEM))
    for client in CLIENTS:
        _write(folder, client.name, authority.issue(_subject(client.common_name, client.group)))
    api = authority.issue(
        _subject("kube-apiserver"),
        names=API_NAMES,
        addresses=("127.0.0.1", layout.NODE_IP, layout.API_SERVICE_IP),
    )
    _write(folder, "apiserver", api)
    node = authority.issue(
        _subject(layout.NODE_NAME), names=(layout.NODE_NAME,), addresses=(layout.NODE_IP,)
    )
    _write(folder, "kubelet-server", node)
    _write_token_keys(folder)


def _write_token_keys(folder: Path) -> None:
    """The pair that signs and checks the tokens of service accounts."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write_secret(folder / "service-account.key", _pem(key))
    (folder / "service-account.pub").write_bytes(public)


def _write(folder: Path, name: str, pair: tuple[bytes, bytes]) -> None:
    certificate, key = pair
    (folder / f"{name}.crt").write_bytes(certificate)
    _write_secret(folder / f"{name}.key", key)


def _write_secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _subject(common_name: str, group: str = "") -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if group:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(attributes)


def _builder(
    subject: x509.Name, *, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
    )


def _alternative_names(
    names: Sequence[str], addresses: Sequence[str]
) -> x509.SubjectAlternativeName:
    general: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    general += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    return x509.SubjectAlternativeName(general)


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
