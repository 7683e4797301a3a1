"""Plain requests to a Kubernetes API, ours or a real one, as its kubeconfig says.

The official client's configuration does the authentication; objects stay plain JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config

from simulator.errors import HostError

TIMEOUT_S = 20.0


class Refused(Exception):
    """The API answered with an error; `code` is the HTTP status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Kube:
    """One cluster."""

    def __init__(self, kubeconfig: Path) -> None:
        settings: Any = client.Configuration()
        try:
            load: Any = config.load_kube_config
            load(str(kubeconfig), client_configuration=settings)
        except Exception as error:  # the loader raises whatever a bad file makes it meet
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise HostError(
                f"{kubeconfig}: cannot be used as a kubeconfig ({said}). "
                "Next: name a readable kubeconfig file."
            ) from None
        self._server = str(settings.host)
        self._headers = {
            str(auth["key"]): str(auth["value"])
            for auth in settings.auth_settings().values()
            if auth["in"] == "header" and auth["value"]
        }
        self._pool = urllib3.PoolManager(
            ca_certs=settings.ssl_ca_cert,
            cert_file=settings.cert_file,
            key_file=settings.key_file,
            cert_reqs="CERT_REQUIRED" if settings.verify_ssl else "CERT_NONE",
            timeout=TIMEOUT_S,
            retries=urllib3.Retry(connect=1, read=0, redirect=0),
        )

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        headers = self._headers | {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = self._pool.request(method, self._server + path, body=data, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise HostError(
                f"{self._server}: the Kubernetes API does not answer ({type(error).__name__}). "
                "Next: see whether the testbed or cluster is up."
            ) from None
        if answer.status >= 400:
            raise Refused(answer.status, _message(answer.data))
        return bytes(answer.data)

    def get(self, path: str) -> dict[str, Any] | None:
        """The object at `path`, None when there is none."""
        try:
            found: dict[str, Any] = json.loads(self.request("GET", path))
        except Refused as refused:
            if refused.code == 404:
                return None
            raise HostError(f"{self._server}{path}: {refused}.") from None
        return found

    def close(self) -> None:
        self._pool.clear()


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return data.decode(errors="replace")[:200]
