"""Certificates and the kubeconfig of one run: made new each time, never leaving its directory."""

from __future__ import annotations

import base64
import os
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme
import yaml

NAMES = ("127.0.0.1", "localhost", "kubernetes", "kubernetes.default.svc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a server shows and what its clients need."""

    server: ssl.SSLContext
    ca_pem: bytes
    token: str


def make(token: str | None = None) -> Identity:
    """A fresh authority, a server certificate for loopback, and a bearer token."""
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*NAMES, key_type=trustme.KeyType.ECDSA).configure_cert(context)
    return Identity(
        server=context,
        ca_pem=authority.cert_pem.bytes(),
        token=token or secrets.token_urlsafe(32),
    )


def kubeconfig(server: str, identity: Identity) -> str:
    """A self-contained kubeconfig with one context, `npu-testbed`."""
    name = "npu-testbed"
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [
                {
                    "name": name,
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": base64.b64encode(identity.ca_pem).decode(),
                    },
                }
            ],
            "users": [{"name": name, "user": {"token": identity.token}}],
            "contexts": [
                {"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}
            ],
        },
        sort_keys=False,
    )


def write_secret(path: Path, text: str) -> None:
    """Only the owner can read the file, from its first moment on."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
