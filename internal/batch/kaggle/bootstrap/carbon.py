"""codecarbon, in a process next to the program, if the user asks for it."""

import json
import os
import subprocess
import sys

INSTALL_SECONDS = 240
ANSWER_SECONDS = 60


class NoCompanion:
    """Stands for a companion where none runs."""

    def pids(self):
        return set()

    def stop(self, notes):
        return None


class Companion:
    def __init__(self, process):
        self.process = process

    def pids(self):
        return {self.process.pid}

    def stop(self, notes):
        try:
            answer, _ = self.process.communicate(timeout=ANSWER_SECONDS)
            return json.loads(answer.strip().splitlines()[-1])
        except (subprocess.SubprocessError, ValueError, IndexError, OSError) as e:
            self.process.kill()
            self.process.wait()
            notes.append("codecarbon gave no figure: %s" % type(e).__name__)
            return None


def start(payload, private, workspace, notes):
    """Starts the tracker and waits until it measures."""
    wanted = payload.get("codecarbon")
    if not wanted:
        return NoCompanion()
    env = dict(os.environ)
    try:
        if not importable(wanted["version"], env):
            target = os.path.join(private, "codecarbon")
            subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", target, "codecarbon==" + wanted["version"]],
                check=True, timeout=INSTALL_SECONDS, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            env["PYTHONPATH"] = target
        process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), json.dumps(wanted)], cwd=private, env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )
        if process.stdout.readline().strip() != "ready":
            process.kill()
            process.wait()
            raise OSError("it did not start")
        return Companion(process)
    except (OSError, subprocess.SubprocessError) as e:
        notes.append("codecarbon %s could not run alongside the code: %s" % (wanted["version"], e))
        return NoCompanion()


def importable(version, env):
    check = "import sys; from importlib import metadata; sys.exit(metadata.version('codecarbon') != sys.argv[1])"
    return subprocess.run([sys.executable, "-c", check, version], env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60).returncode == 0


def track(wanted):
    """The companion's process: measures until its input ends."""
    from codecarbon import OfflineEmissionsTracker

    place = {"country_iso_code": wanted["country"]}
    if wanted.get("region"):
        place["region"] = wanted["region"]
    tracker = OfflineEmissionsTracker(
        measure_power_secs=5, save_to_file=False, save_to_logger=False, log_level="critical", allow_multiple_runs=True, tracking_mode="machine", **place
    )
    tracker.start()
    print("ready", flush=True)
    sys.stdin.read()
    tracker.stop()
    data = tracker.final_emissions_data
    print(json.dumps({
        "version": wanted["version"], "seconds": data.duration, "kWh": data.energy_consumed, "cpuKWh": data.cpu_energy,
        "ramKWh": data.ram_energy, "gpuKWh": data.gpu_energy, "kgCO2e": data.emissions, "country": data.country_iso_code,
    }))


if __name__ == "__main__":
    track(json.loads(sys.argv[1]))
