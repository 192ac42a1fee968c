"""A registry with stand-ins for the container disks of KubeVirt's tests, on a port of this host.

    registry.py DISKS        prints its port, and serves until it is ended

DISKS has alpine.qcow2, cirros.qcow2 and fedora.qcow2. Images are read only and have every tag.
"""

import gzip
import hashlib
import io
import json
import sys
import tarfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DISKS = Path(sys.argv[1])
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
# Which disk, at which path, is in an image of which name.
IMAGES = {
    "alpine-container-disk-demo": ("alpine", "disk/alpine.qcow2"),
    "alpine-with-test-tooling-container-disk": ("alpine", "disk/alpine.qcow2"),
    "cirros-container-disk-demo": ("cirros", "disk/cirros.qcow2"),
    "cirros-custom-container-disk-demo": ("cirros", "custom-disk/downloaded"),
    "fedora-with-test-tooling-container-disk": ("fedora", "disk/fedora.qcow2"),
}
blobs = {}
manifests = {}


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def blob(kind, data):
    blobs[digest(data)] = data
    return {"mediaType": kind, "size": len(data), "digest": digest(data)}


def image(path, disk):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo(path)
        entry.size, entry.mode = len(disk), 0o644
        tar.addfile(entry, io.BytesIO(disk))
    # The disk is compressed already.
    layer = gzip.compress(archive.getvalue(), 1, mtime=0)
    layers = {"type": "layers", "diff_ids": [digest(archive.getvalue())]}
    config = {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": layers}
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blob("application/vnd.docker.container.image.v1+json", json.dumps(config).encode()),
        "layers": [blob("application/vnd.docker.image.rootfs.diff.tar.gzip", layer)],
    }
    return json.dumps(manifest).encode()


class Registry(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        code, kind, data = self.found()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Docker-Content-Digest", digest(data))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET

    def found(self):
        parts = self.path.split("?")[0].strip("/").split("/")
        if parts == ["v2"]:
            return 200, "application/json", b"{}"
        if len(parts) > 3 and parts[-2] == "blobs" and parts[-1] in blobs:
            return 200, "application/octet-stream", blobs[parts[-1]]
        if len(parts) > 3 and parts[-2] == "manifests":
            by_digest = {digest(manifest): manifest for manifest in manifests.values()}
            manifest = by_digest.get(parts[-1]) or manifests.get(parts[-3])
            if manifest and (parts[-1] in by_digest or not parts[-1].startswith("sha256:")):
                return 200, MANIFEST, manifest
        return 404, "application/json", b'{"errors":[{"code":"NAME_UNKNOWN"}]}'

    def log_message(self, *_):
        pass


for name, (disk, path) in IMAGES.items():
    manifests[name] = image(path, (DISKS / f"{disk}.qcow2").read_bytes())
server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
print(server.server_port, flush=True)
server.serve_forever()
