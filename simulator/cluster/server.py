"""The Kubernetes API over TLS: paths, verbs and streams on top of the store.

A thin shell: it translates requests into store calls and answers. Every request needs the bearer
token. Left out, by choice: protobuf bodies, RBAC, field managers, CRDs.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml
from aiohttp import web

from simulator.cluster import discovery, openapi_v2, patch, selectors, tables
from simulator.cluster.cluster import Cluster
from simulator.cluster.errors import ApiError, bad_request, not_found
from simulator.cluster.kinds import Kind, find
from simulator.cluster.pki import Identity
from simulator.cluster.store import WatchEvent

Object = dict[str, Any]
# (namespace, pod, container) -> log text; None when the container has not started.
Logs = Callable[[str, str, str], str | None]

MAX_BODY = 4 << 20
BOOKMARK_S = 30.0
FOLLOW_S = 0.2
STOP_S = 0.5
_BINARY = ("application/vnd.kubernetes.protobuf", "application/cbor")
_OPEN_PATHS = ("/livez", "/readyz", "/healthz")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What a path means."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    sub: str = ""


class ApiServer:
    """Serves one cluster on loopback."""

    def __init__(
        self,
        cluster: Cluster,
        identity: Identity,
        *,
        logs: Logs,
        now: Callable[[], float],
        kubernetes: str = "v1.28.0",
    ) -> None:
        self._cluster = cluster
        self._identity = identity
        self._logs = logs
        self._now = now
        self._kubernetes = kubernetes
        self._runner: web.AppRunner | None = None
        self._stopping = asyncio.Event()
        self.port = 0

    async def start(self, port: int = 0) -> None:
        """Listen on 127.0.0.1; port 0 takes a free one. Raises OSError when the port is taken."""
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_S)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=self._identity.server)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port; open watches end, idle connections are cut."""
        self._stopping.set()
        if self._runner is None:
            return
        server = self._runner.server
        connections = [] if server is None else list(server.connections)
        transports = [connection.transport for connection in connections]
        await self._runner.cleanup()
        for transport in transports:
            # Python before 3.11.4 fails on a TLS transport that has just closed by itself.
            with contextlib.suppress(AttributeError):
                if transport is not None:
                    transport.abort()
        await asyncio.sleep(0)  # let the transports close their sockets

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            if request.path in _OPEN_PATHS:
                return web.Response(text="ok")
            self._authenticate(request)
            return await self._route(request)
        except ApiError as error:
            return web.json_response(error.status(), status=error.code)
        except web.HTTPRequestEntityTooLarge:
            large = ApiError(413, "RequestEntityTooLarge", f"limit is {MAX_BODY} bytes")
            return web.json_response(large.status(), status=413)

    def accepts(self, token: str) -> bool:
        """Whether a bearer token is one of ours."""
        return hmac.compare_digest(token.encode(), self._identity.token.encode())

    def _authenticate(self, request: web.Request) -> None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self.accepts(token.strip()):
            raise ApiError(401, "Unauthorized", "Unauthorized")

    async def _route(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/openapi/v2":
            headers = {"Content-Type": openapi_v2.CONTENT_TYPE}
            return web.Response(body=openapi_v2.document(), headers=headers)
        answer = self._about(request.path)
        if answer is not None:
            return web.json_response(answer)
        place = _place(request.path)
        if place is None:
            text = "the server could not find the requested resource"
            raise ApiError(404, "NotFound", text)
        if place.sub == "log":
            return await self._log(request, place)
        if place.sub == "binding" and request.method == "POST":
            return await self._bind(request, place)
        if place.sub and not (place.sub == "status" and place.kind.has_status):
            raise not_found(place.kind, f"{place.name}/{place.sub}")
        if request.method == "GET":
            if place.name:
                obj = self._cluster.store.get(place.kind.plural, place.name, place.namespace)
                return self._answer(request, place.kind, obj)
            if request.query.get("watch") in ("true", "1"):
                return await self._watch(request, place)
            return self._list(request, place)
        change = {
            "POST": self._create,
            "PUT": self._update,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }.get(request.method)
        if change is None:
            raise ApiError(405, "MethodNotAllowed", f"{request.method} is not allowed here")
        return await change(request, place)

    def _about(self, path: str) -> Object | None:
        parts = [part for part in path.split("/") if part]
        match parts:
            case ["version"]:
                return dict(discovery.version(self._kubernetes))
            case ["api"]:
                return discovery.core_versions()
            case ["apis"]:
                return discovery.groups()
            case ["api", version]:
                return discovery.resources("", version)
            case ["apis", name]:
                return discovery.group(name)
            case ["apis", name, version]:
                return discovery.resources(name, version)
            case ["openapi", "v3"]:
                return discovery.openapi_index()
            case ["openapi", "v3", *rest]:
                return discovery.openapi("/".join(rest))
        return None

    # --- reading

    def _answer(
        self, request: web.Request, kind: Kind, obj: Object, status: int = 200
    ) -> web.Response:
        if _wants_table(request):
            version = str(obj["metadata"]["resourceVersion"])
            obj = tables.table(kind, [obj], now=self._now(), version=version)
        return web.json_response(obj, status=status)

    def _list(self, request: web.Request, place: _Place) -> web.Response:
        kind = place.kind
        claim = _claim(request)
        objects = [
            obj for obj in self._cluster.store.list(kind.plural, place.namespace) if claim(obj)
        ]
        metadata: Object = {"resourceVersion": str(self._cluster.store.version)}
        start = _continued(request)
        if start is not None:
            objects = [obj for obj in objects if _key(obj) > start]
        limit = _number(request, "limit")
        if limit and len(objects) > limit:
            metadata["remainingItemCount"] = len(objects) - limit
            objects = objects[:limit]
            token = json.dumps(_key(objects[-1])).encode()
            metadata["continue"] = base64.urlsafe_b64encode(token).decode()
        if _wants_table(request):
            table = tables.table(
                kind, objects, now=self._now(), version=str(metadata["resourceVersion"])
            )
            table["metadata"] = metadata
            return web.json_response(table)
        body = {
            "kind": f"{kind.kind}List",
            "apiVersion": kind.api_version,
            "metadata": metadata,
            "items": objects,
        }
        return web.json_response(body)

    async def _watch(self, request: web.Request, place: _Place) -> web.StreamResponse:
        kind, claim = place.kind, _claim(request)
        store = self._cluster.store
        queue: asyncio.Queue[WatchEvent] = asyncio.Queue()
        start = request.query.get("resourceVersion", "")
        wants_initial = request.query.get("sendInitialEvents") in ("true", "1")
        missed: list[WatchEvent] = []
        first: list[Object] = []
        if start in ("", "0") or wants_initial:
            first = [obj for obj in store.list(kind.plural, place.namespace) if claim(obj)]
        else:
            missed = store.since(_version(start))
        stop = store.subscribe(queue.put_nowait)
        try:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            response.enable_chunked_encoding()
            await response.prepare(request)
            is_table = _wants_table(request)

            async def send(change: str, obj: Object) -> None:
                if is_table and change != "BOOKMARK":
                    version = str(obj["metadata"]["resourceVersion"])
                    obj = tables.table(kind, [obj], now=self._now(), version=version)
                line = json.dumps({"type": change, "object": obj}, separators=(",", ":"))
                await response.write(line.encode() + b"\n")

            for obj in first:
                await send("ADDED", obj)
            if wants_initial:
                end = _bookmark(kind, store.version)
                end["metadata"]["annotations"] = {"k8s.io/initial-events-end": "true"}
                await send("BOOKMARK", end)
            for event in missed:
                await self._pass_on(event, place, claim, send)
            timeout = _number(request, "timeoutSeconds")
            await self._stream(request, queue, place, claim, send, timeout)
        except (ConnectionError, asyncio.CancelledError):
            return response
        finally:
            stop()
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
        return response

    async def _stream(
        self,
        request: web.Request,
        queue: asyncio.Queue[WatchEvent],
        place: _Place,
        claim: selectors.Claim,
        send: Any,
        timeout: int | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout if timeout else None
        wants_bookmarks = request.query.get("allowWatchBookmarks") in ("true", "1")
        stopping = loop.create_task(self._stopping.wait())
        try:
            while not self._stopping.is_set():
                wait = BOOKMARK_S if ends_at is None else min(BOOKMARK_S, ends_at - loop.time())
                if wait <= 0:
                    return
                getting = loop.create_task(queue.get())
                await asyncio.wait(
                    {getting, stopping}, timeout=wait, return_when=asyncio.FIRST_COMPLETED
                )
                if not getting.done():
                    getting.cancel()
                    if wants_bookmarks and not self._stopping.is_set():
                        version = self._cluster.store.version
                        await send("BOOKMARK", _bookmark(place.kind, version))
                    continue
                await self._pass_on(getting.result(), place, claim, send)
        finally:
            stopping.cancel()

    @staticmethod
    async def _pass_on(event: WatchEvent, place: _Place, claim: Any, send: Any) -> None:
        """One change as this watcher sees it: entering or leaving the selection counts."""
        if event.kind is not place.kind:
            return
        if place.namespace and event.obj["metadata"].get("namespace") != place.namespace:
            return
        is_in = claim(event.obj)
        was_in = event.old is not None and claim(event.old)
        if event.change == "DELETED":
            if was_in:
                await send("DELETED", event.obj)
        elif is_in:
            await send("MODIFIED" if was_in else "ADDED", event.obj)
        elif was_in:
            await send("DELETED", event.obj)

    async def _log(self, request: web.Request, place: _Place) -> web.StreamResponse:
        pod = self._cluster.store.get("pods", place.name, place.namespace)
        names = [c["name"] for c in pod["spec"]["containers"]]
        names += [c["name"] for c in pod["spec"].get("initContainers") or ()]
        container = request.query.get("container") or names[0]
        if container not in names:
            raise bad_request(f"container {container} is not valid for pod {place.name}")
        if not request.query.get("container") and len(pod["spec"]["containers"]) > 1:
            raise bad_request(
                f"a container name must be specified for pod {place.name}, choose one of: "
                f"[{' '.join(names)}]"
            )
        text = self._logs(place.namespace, place.name, container)
        if text is None:
            raise bad_request(
                f'container "{container}" in pod "{place.name}" is waiting to start: '
                f"{tables.pod_state(pod)}"
            )
        if request.query.get("follow") in ("true", "1"):
            return await self._follow(request, place, container)
        tail = _number(request, "tailLines")
        if tail is not None:
            lines = text.splitlines(keepends=True)
            text = "".join(lines[len(lines) - min(tail, len(lines)) :])
        return web.Response(text=text, content_type="text/plain")

    async def _follow(
        self, request: web.Request, place: _Place, container: str
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        sent = 0
        while not self._stopping.is_set():
            pod = self._cluster.store.find("pods", place.name, place.namespace)
            text = self._logs(place.namespace, place.name, container) or ""
            if len(text) > sent:
                await response.write(text[sent:].encode())
                sent = len(text)
            phase = ((pod or {}).get("status") or {}).get("phase")
            if pod is None or phase in ("Succeeded", "Failed"):
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), FOLLOW_S)
        await response.write_eof()
        return response

    # --- changing

    async def _create(self, request: web.Request, place: _Place) -> web.StreamResponse:
        if place.name:
            raise ApiError(405, "MethodNotAllowed", "POST needs a collection")
        body = await _body(request)
        made = self._cluster.store.create(
            place.kind.plural, body, place.namespace, is_dry=_is_dry(request)
        )
        return self._answer(request, place.kind, made, status=201)

    async def _update(self, request: web.Request, place: _Place) -> web.StreamResponse:
        body = await _body(request)
        _check_name(body, place)
        done = self._cluster.store.update(
            place.kind.plural,
            body,
            place.namespace,
            only_status=place.sub == "status",
            is_dry=_is_dry(request),
        )
        return self._answer(request, place.kind, done)

    async def _patch(self, request: web.Request, place: _Place) -> web.StreamResponse:
        store, plural = self._cluster.store, place.kind.plural
        body = await _body(request)
        is_apply = request.content_type == patch.APPLY
        old = store.find(plural, place.name, place.namespace)
        if old is None and is_apply:
            made = store.create(plural, body, place.namespace, is_dry=_is_dry(request))
            return self._answer(request, place.kind, made, status=201)
        if old is None:
            raise not_found(place.kind, place.name)
        new = patch.apply(request.content_type, old, body)
        _check_name(new, place)
        sent = body.get("metadata") if isinstance(body, dict) else None
        if not (isinstance(sent, dict) and sent.get("resourceVersion")):
            new["metadata"].pop("resourceVersion", None)
        done = store.update(
            plural,
            new,
            place.namespace,
            only_status=place.sub == "status",
            is_dry=_is_dry(request),
        )
        return self._answer(request, place.kind, done)

    async def _delete(self, request: web.Request, place: _Place) -> web.StreamResponse:
        options = await _body(request) if request.can_read_body else {}
        store, plural = self._cluster.store, place.kind.plural
        grace = options.get("gracePeriodSeconds")
        if grace is None:
            grace = _number(request, "gracePeriodSeconds")
        if grace is not None and (isinstance(grace, bool) or not isinstance(grace, int)):
            raise bad_request("gracePeriodSeconds must be a whole number")
        uid = (options.get("preconditions") or {}).get("uid")
        if not place.name:
            claim = _claim(request)
            for obj in store.list(plural, place.namespace):
                if claim(obj):
                    metadata = obj["metadata"]
                    space = metadata.get("namespace", "")
                    store.delete(plural, metadata["name"], space, grace_s=grace)
            return self._list(request, place)
        if _is_dry(request):
            gone = store.get(plural, place.name, place.namespace)
        else:
            gone = store.delete(plural, place.name, place.namespace, grace_s=grace, uid=uid)
        if plural == "pods" or store.find(plural, place.name, place.namespace) is not None:
            return web.json_response(gone)
        details = {
            "name": place.name,
            "group": place.kind.group,
            "kind": plural,
            "uid": gone["metadata"]["uid"],
        }
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return web.json_response(status | {"details": details})

    async def _bind(self, request: web.Request, place: _Place) -> web.StreamResponse:
        body = await _body(request)
        node = (body.get("target") or {}).get("name")
        if not node:
            raise bad_request("a binding needs target.name")
        self._cluster.bind(place.namespace, place.name, str(node))
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return web.json_response(status, status=201)


def _place(path: str) -> _Place | None:
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    if not rest or len(rest) > 3:
        return None
    kind = find(group, version, rest[0])
    if kind is None or (namespace and not kind.is_namespaced):
        return None
    name = rest[1] if len(rest) > 1 else ""
    if name and kind.is_namespaced and not namespace:
        return None
    return _Place(kind=kind, namespace=namespace, name=name, sub=rest[2] if len(rest) > 2 else "")


def _wants_table(request: web.Request) -> bool:
    first = request.headers.get("Accept", "").partition(",")[0]
    return "as=Table" in first and "v=v1;" in f"{first};"


def _claim(request: web.Request) -> selectors.Claim:
    labels = selectors.label_selector(request.query.get("labelSelector", ""))
    fields = selectors.field_selector(request.query.get("fieldSelector", ""))
    return lambda obj: labels(obj) and fields(obj)


def _number(request: web.Request, name: str) -> int | None:
    text = request.query.get(name)
    if not text:
        return None
    try:
        return max(0, int(text))
    except ValueError:
        raise bad_request(f'invalid value "{text}" for {name}: must be a whole number') from None


def _version(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'invalid resource version "{text}"') from None


def _bookmark(kind: Kind, version: int) -> Object:
    metadata = {"resourceVersion": str(version)}
    return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}


def _key(obj: Object) -> list[str]:
    return [str(obj["metadata"].get("namespace", "")), str(obj["metadata"]["name"])]


def _continued(request: web.Request) -> list[str] | None:
    token = request.query.get("continue")
    if not token:
        return None
    try:
        start = json.loads(base64.urlsafe_b64decode(token))
        return [str(part) for part in start]
    except (ValueError, TypeError):
        raise bad_request("continue key is not valid") from None


def _is_dry(request: web.Request) -> bool:
    return request.query.get("dryRun") == "All"


def _check_name(body: Object, place: _Place) -> None:
    name = (body.get("metadata") or {}).get("name")
    if name != place.name:
        raise bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({place.name})"
        )


async def _body(request: web.Request) -> Any:
    if request.content_type in _BINARY:
        raise ApiError(
            415,
            "UnsupportedMediaType",
            f"{request.content_type} bodies are not supported by this testbed, only JSON and "
            "YAML. Next: kubectl ... --dry-run=client -o yaml | kubectl apply -f -",
        )
    raw = await request.read()
    if not raw:
        return {}
    try:
        read: Callable[[bytes], Any] = (
            yaml.safe_load if "yaml" in request.content_type else json.loads
        )
        parsed = read(raw)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise bad_request(f"the body cannot be read: {str(error).splitlines()[0]}") from None
    if not isinstance(parsed, dict) and request.content_type != patch.JSON_PATCH:
        raise bad_request("the body must be an object")
    return parsed
