"""A Kaggle as a process, and Kaggle's own programs to use it."""

import json
import os
import pathlib
import subprocess
import sys
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOKEN, KEY, REFRESH = "KGAT_0123456789abcdef", "k3y-of-ada", "refresh-of-ada"


class Fake:
    """A running Kaggle."""

    def __init__(self, directory, *flags):
        binary = ROOT / ".cache/bin/kagglefake"
        subprocess.run(["go", "build", "-o", binary, "./test/kaggle/fake"], cwd=ROOT, check=True, timeout=300, env={**os.environ, "CGO_ENABLED": "0"})
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [binary, "-dir", directory, "-python", sys.executable, "-key", KEY, "-tokens", TOKEN, "-refresh", REFRESH, *flags],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        places = json.loads(self.process.stdout.readline())
        self.url, self.storage, self.control = places["url"], places["storage"], places["control"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)

    def ask(self, what, **body):
        data = json.dumps(body).encode() if body or what in ("hold", "release", "heal") else None
        with urllib.request.urlopen(urllib.request.Request(self.control + "/" + what, data), timeout=30) as answer:
            return json.load(answer)

    def fault(self, **fault):
        self.ask("fault", **fault)

    def journal(self, call=None):
        return [e for e in self.ask("journal") or [] if call in (None, e["call"])]

    def sdk(self, **credentials):
        """Kaggle's own client, of this Kaggle."""
        import kagglesdk.kaggle_env as environment
        from kagglesdk.kaggle_client import KaggleClient

        environment._env_to_endpoint[environment.KaggleEnv.LOCAL] = self.url
        return KaggleClient(env=environment.KaggleEnv.LOCAL, **credentials)

    def cli(self, home, *words, env=None, check=True):
        """Kaggle's own command, of this Kaggle."""
        start = (
            "import sys, kagglesdk.kaggle_env as e; e._env_to_endpoint[e.KaggleEnv.LOCAL] = sys.argv.pop(1); "
            "sys.argv[0] = 'kaggle'; from kaggle.cli import main; main()"
        )
        home.mkdir(parents=True, exist_ok=True)
        variables = {"HOME": str(home), "PATH": os.environ["PATH"], "KAGGLE_API_ENVIRONMENT": "LOCALHOST", **({"KAGGLE_API_TOKEN": TOKEN} if env is None else env)}
        done = subprocess.run([sys.executable, "-c", start, self.url, *words], cwd=home, env=variables, capture_output=True, text=True, timeout=120)
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
