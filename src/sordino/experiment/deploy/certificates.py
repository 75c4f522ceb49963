"""The federation's own certificate authority, its server's certificate, and the keys by which nodes are known.

ca.key ── signs ─► server.pem, the coordinator's      node.key (ECDSA P-384) ── belongs to ─► node.pub, registered there

A site trusts `ca.pem` and nothing else: no public authority can put another server in the coordinator's place.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sordino.core.errors import ConfigError, VerificationError

_YEARS = dt.timedelta(days=3650)
_EARLY = dt.timedelta(minutes=10)
"""A certificate holds from a little earlier on: clocks of machines differ."""


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read.

    Raises:
        ConfigError: It exists already; a key is never overwritten.
    """
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigError.about("key", f"cannot be written ({error.strerror})", file=str(path)) from error
    with os.fdopen(number, "wb") as file:
        file.write(content)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _begin(subject: str, issuer: x509.Name | None, days: dt.timedelta) -> x509.CertificateBuilder:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(issuer or name)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now - _EARLY).not_valid_after(now + days)


def make_authority(name: str, certificate: Path, key: Path) -> None:
    """A new authority: it can sign servers, and no further authorities.

    Args:
        name: Whose.
        certificate: Where its certificate goes; everybody may have it.
        key: Where its key goes. Whoever has it can stand in the coordinator's place.
    """
    private = ec.generate_private_key(ec.SECP384R1())
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = _begin(f"{name} certificate authority"[:64], None, _YEARS).public_key(private.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
    signed = builder.sign(private, hashes.SHA384())
    write_private(key, _pem(private))
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def make_server(hosts: Sequence[str], days: int, authority: Path, authority_key: Path, folder: Path) -> None:
    """A server's key and certificate (`server.key`, `server.pem`).

    Args:
        hosts: Names and addresses by which it is reached; loopback is added.
        days: For how many days it holds.
        authority: The authority's certificate.
        authority_key: The authority's key.
        folder: Where the two files go.
    """
    issuer = read_certificate(authority)
    signer = _read_key(authority_key)
    private = ec.generate_private_key(ec.SECP384R1())
    names = [_general(host) for host in dict.fromkeys([*hosts, "localhost", "127.0.0.1"])]
    builder = _begin(hosts[0][:64], issuer.subject, dt.timedelta(days=days)).public_key(private.public_key())
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    # Strict checking of chains, the default from Python 3.13 on, asks for this.
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
    )
    signed = builder.sign(signer, hashes.SHA384())
    write_private(folder / "server.key", _pem(private))
    (folder / "server.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def make_node_key(folder: Path) -> bytes:
    """A node's key pair (`node.key`, `node.pub`) in OpenSSH's form, as Flower reads it; returns the public half."""
    private = ec.generate_private_key(ec.SECP384R1())
    write_private(
        folder / "node.key",
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        ),
    )
    public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / "node.pub").write_bytes(public + b"\n")
    return public + b"\n"


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def read_certificate(path: Path) -> x509.Certificate:
    """A certificate in PEM.

    Raises:
        VerificationError: There is none, or it is damaged.
    """
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise VerificationError.about(
            "certificate", "is missing or damaged", "copy it again", file=path.name
        ) from error


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        key = None  # the parser's own message may quote the file
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise VerificationError.about("key", "is missing or damaged", file=path.name)
    return key


def check_server(folder: Path, host: str, *, now: dt.datetime | None = None) -> None:
    """Return only if a folder's server certificate is its authority's, holds now, and is for that host and that key.

    Raises:
        VerificationError: It is not; says which.
    """
    authority, server = read_certificate(folder / "ca.pem"), read_certificate(folder / "server.pem")
    check_dates(authority, "ca.pem", now=now)
    check_dates(server, "server.pem", now=now)
    try:
        server.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError) as error:
        raise VerificationError.about(
            "certificate", "is not by the authority in ca.pem", "copy both from one `init`", file="server.pem"
        ) from error
    if _read_key(folder / "server.key").public_key() != server.public_key():
        raise VerificationError.about("certificate", "is not for the key in server.key", file="server.pem")
    if _general(host) not in server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value:
        raise VerificationError.about("certificate", "does not name this host", "make it anew", host=host)


def check_dates(certificate: x509.Certificate, name: str, *, now: dt.datetime | None = None) -> None:
    """Return only if a certificate holds now.

    Raises:
        VerificationError: It does not hold yet, or no more.
    """
    now = now or dt.datetime.now(dt.UTC)
    if now > certificate.not_valid_after_utc:
        day = certificate.not_valid_after_utc.date().isoformat()
        raise VerificationError.about("certificate", f"has expired on {day}", "make it anew with ca.key", file=name)
    if now < certificate.not_valid_before_utc:
        raise VerificationError.about("certificate", "does not hold yet", "is this machine's clock right?", file=name)


def check_node_key(folder: Path) -> None:
    """Return only if a site's `node.key` and `node.pub` are one pair of the kind that Flower takes.

    Raises:
        VerificationError: They are not.
    """
    private: object
    public: object
    try:
        private = serialization.load_ssh_private_key((folder / "node.key").read_bytes(), password=None)
        public = serialization.load_ssh_public_key((folder / "node.pub").read_bytes())
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        private = public = None  # as above
    if not isinstance(private, ec.EllipticCurvePrivateKey) or not isinstance(public, ec.EllipticCurvePublicKey):
        raise VerificationError.about("key", "is missing or damaged", "copy the folder again", file="node.key")
    if private.public_key() != public:
        raise VerificationError.about(
            "key", "does not belong to node.pub", "copy both from one `init`", file="node.key"
        )
