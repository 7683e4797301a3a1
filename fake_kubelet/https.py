"""The kubelet's HTTPS endpoint: /pods, /healthz, /containerLogs, /metrics, /metrics/resource.

TLS 1.3 only, and every request needs the bearer token. Certificate, its authority and the token are
made per run and lie below `var/lib/kubelet/pki`, the token readable by its owner only.
"""

from __future__ import annotations

import hmac
import os
import secrets
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import trustme
from aiohttp import web

DIRECTORY = "var/lib/kubelet/pki"
AUTHORITY = "kubelet-ca.crt"
TOKEN = "kubelet-token"  # noqa: S105 - the name of a file
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

Logs = Callable[[str, str, str], str | None]
Accepts = Callable[[str], bool]


class HttpsEndpoint:
    """Serves on loopback. `pods` gives the PodList's items, `checks` the health checks by name
    (None: well, else what is wrong), `metrics` and `resource_metrics` Prometheus texts, `logs` a
    container's log by namespace, pod and container, `accepts` whether another token than its own
    will do."""

    def __init__(
        self,
        root: Path,
        *,
        pods: Callable[[], list[Mapping[str, Any]]],
        checks: Callable[[], Mapping[str, str | None]],
        metrics: Callable[[], str],
        resource_metrics: Callable[[], str],
        logs: Logs,
        accepts: Accepts,
        port: int = 0,
    ) -> None:
        self.directory = root / DIRECTORY
        self.port = port
        self._pods = pods
        self._checks = checks
        self._metrics = metrics
        self._resource_metrics = resource_metrics
        self._logs = logs
        self._accepts = accepts
        self._token = secrets.token_urlsafe(32)
        self._tls = self._make_tls()
        self._runner: web.AppRunner | None = None

    @property
    def authority(self) -> Path:
        return self.directory / AUTHORITY

    @property
    def token(self) -> Path:
        return self.directory / TOKEN

    async def open(self) -> None:
        """Listen; the port of the first time is kept. Raises OSError."""
        if self._runner is not None:
            return
        app = web.Application(middlewares=[self._authenticate])
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/healthz/{check}", self._healthz),
                web.get("/pods", self._list_pods),
                web.get("/pods/", self._list_pods),
                web.get("/containerLogs/{namespace}/{pod}/{container}", self._log),
                web.get("/metrics", self._show_metrics),
                web.get("/metrics/resource", self._show_resource_metrics),
            ]
        )
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.0)
        await runner.setup()
        self._runner = runner
        await web.TCPSite(runner, "127.0.0.1", self.port, ssl_context=self._tls).start()
        self.port = runner.addresses[0][1]

    async def close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    # --- inside

    def _make_tls(self) -> ssl.SSLContext:
        authority = trustme.CA(organization_name="fake kubelet")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority.cert_pem.write_to_path(str(self.authority))
        self.token.unlink(missing_ok=True)
        with open(os.open(self.token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(self._token)
        return context

    @web.middleware
    async def _authenticate(self, request: web.Request, handler: Any) -> web.StreamResponse:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        is_ours = hmac.compare_digest(token.encode(), self._token.encode())
        if kind != "Bearer" or not (is_ours or self._accepts(token)):
            return web.Response(status=401, text="Unauthorized")
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _healthz(self, request: web.Request) -> web.Response:
        found = self._checks()
        only = request.match_info.get("check")
        if only is not None:
            if only not in found:
                return web.Response(status=404, text="404 page not found\n")
            found = {only: found[only]}
        if all(trouble is None for trouble in found.values()):
            return web.Response(text="ok")
        lines = [
            f"[+]{name} ok" if trouble is None else f"[-]{name} failed: {trouble}"
            for name, trouble in found.items()
        ]
        return web.Response(status=500, text="\n".join((*lines, "healthz check failed", "")))

    async def _list_pods(self, _: web.Request) -> web.Response:
        body = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": self._pods()}
        return web.json_response(body)

    async def _log(self, request: web.Request) -> web.Response:
        place = request.match_info
        namespace, pod, container = place["namespace"], place["pod"], place["container"]
        text = self._logs(namespace, pod, container)
        if text is None:
            missing = f'container "{container}" of pod "{pod}_{namespace}" does not exist'
            return web.Response(status=404, text=missing)
        tail = request.query.get("tailLines", "")
        if tail and not tail.isdecimal():
            return web.Response(status=400, text=f'tailLines "{tail}" is no number of lines')
        if tail:
            lines = text.splitlines(keepends=True)
            text = "".join(lines[len(lines) - int(tail) :] if int(tail) < len(lines) else lines)
        return web.Response(text=text)

    async def _show_metrics(self, _: web.Request) -> web.Response:
        return _exposition(self._metrics())

    async def _show_resource_metrics(self, _: web.Request) -> web.Response:
        return _exposition(self._resource_metrics())


def _exposition(text: str) -> web.Response:
    return web.Response(body=text.encode(), headers={"Content-Type": _PROMETHEUS})
