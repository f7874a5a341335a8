"""A registry of npm and an index of PyPI on this machine, with the packages of one
release: `npx` and `uvx` see what they would see after a release was published."""

import base64
import hashlib
import http.server
import json
import re
import tarfile
import threading
import urllib.parse


class Registries:
    """Serves a folder with a release."""

    def __init__(self, dist):
        self.packages, self.wheels, self.files = {}, [], {}
        for path in sorted(dist.iterdir()):
            if path.suffix == ".tgz":
                self._add_npm(path)
            elif path.suffix == ".whl":
                self.wheels.append(path)
            self.files[path.name] = path
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                kind, body = outer.answer(self.path, f"http://127.0.0.1:{outer.port}")
                self.send_response(200 if body is not None else 404)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body or b"")

            do_HEAD = do_GET  # uv asks before it fetches

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.npm, self.pypi = f"http://127.0.0.1:{self.port}/npm/", f"http://127.0.0.1:{self.port}/pypi/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def _add_npm(self, path):
        with tarfile.open(path) as t:
            about = json.load(t.extractfile("package/package.json"))
        about["_file"] = path
        self.packages[about["name"]] = about

    def answer(self, path, base):
        """The type and the body of a reply; no body: not found."""
        path = urllib.parse.unquote(path.partition("?")[0])
        if path.startswith("/file/"):
            found = self.files.get(path.removeprefix("/file/"))
            return "application/octet-stream", found and found.read_bytes()
        if path.startswith("/npm/"):
            about = self.packages.get(path.removeprefix("/npm/"))
            if about is None:
                return "application/json", None
            file = about["_file"]
            integrity = "sha512-" + base64.b64encode(hashlib.sha512(file.read_bytes()).digest()).decode()
            version = {k: v for k, v in about.items() if k != "_file"}
            version["dist"] = {"tarball": f"{base}/file/{file.name}", "integrity": integrity}
            page = {"name": about["name"], "dist-tags": {"latest": about["version"]}, "versions": {about["version"]: version}}
            return "application/json", json.dumps(page).encode()
        if re.fullmatch(r"/pypi/sallyport/?", path):
            links = "".join(f'<a href="{base}/file/{w.name}#sha256={hashlib.sha256(w.read_bytes()).hexdigest()}">{w.name}</a>\n' for w in self.wheels)
            return "text/html", f"<!DOCTYPE html><html><body>{links}</body></html>".encode()
        return "text/plain", None
