"""What the program uses: processor time, memory, and what GPUs draw."""

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import threading
import time

EVERY = 0.25
GPU_EVERY = 1.0
MOST = 4096  # processes and threads of the program


def become_subreaper():
    """Orphans of the program become this process's children, and are counted."""
    try:
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    except (OSError, AttributeError):
        pass


def children_of():
    """Children by parent, each with its number of threads."""
    tree = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as f:
                    fields = f.read().rpartition(b")")[2].split()
                tree.setdefault(int(fields[1]), []).append((int(name), int(fields[17])))
            except (OSError, IndexError, ValueError):
                continue
    return tree


def descendants(pid, except_pids=frozenset()):
    """Threads of all processes below pid, by process."""
    tree, found, todo = children_of(), {}, [pid]
    while todo:
        for child, threads in tree.get(todo.pop(), ()):
            if child not in found and child not in except_pids:
                found[child] = threads
                todo.append(child)
    return found


def end_descendants(pid, except_pids):
    """Kills what the program left running, and reaps it."""
    for _ in range(100):
        left = descendants(pid, except_pids)
        if not left:
            return
        for p in left:
            try:
                os.kill(p, signal.SIGKILL)
            except OSError:
                pass
        for p in left:
            try:
                os.waitpid(p, os.WNOHANG)
            except OSError:
                pass
        time.sleep(0.02)


def resident(pids):
    page, total = os.sysconf("SC_PAGE_SIZE"), 0
    for p in pids:
        try:
            with open("/proc/%d/statm" % p, "rb") as f:
                total += int(f.read().split()[1]) * page
        except (OSError, IndexError, ValueError):
            pass
    return total


class Nvml:
    """The GPUs, through the driver's own library."""

    def __init__(self):
        self.lib = ctypes.CDLL("libnvidia-ml.so.1")
        if self.lib.nvmlInit_v2():
            raise OSError("nvmlInit failed")
        count = ctypes.c_uint()
        if self.lib.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            raise OSError("nvmlDeviceGetCount failed")
        self.devices, self.names = [], []
        for i in range(count.value):
            device, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
            if self.lib.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(device)):
                raise OSError("nvmlDeviceGetHandleByIndex failed")
            self.lib.nvmlDeviceGetName(device, name, 96)
            self.devices.append(device)
            self.names.append(name.value.decode("utf-8", "replace"))
        self.before = [self.energy(d) for d in self.devices]
        self.method = "nvml-energy" if self.devices and None not in self.before else "nvml-power"

    def energy(self, device):
        """Joules since the driver was loaded; None where it does not count."""
        value = ctypes.c_ulonglong()
        if self.lib.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(value)):
            return None
        return value.value / 1000

    def watts(self):
        total = 0.0
        for d in self.devices:
            value = ctypes.c_uint()
            if self.lib.nvmlDeviceGetPowerUsage(d, ctypes.byref(value)):
                return None
            total += value.value / 1000
        return total

    def counted(self):
        now = [self.energy(d) for d in self.devices]
        if self.method != "nvml-energy" or None in now:
            return None
        joules = [n - b for n, b in zip(now, self.before)]
        return sum(joules) if min(joules) >= 0 else None


class Smi:
    """The GPUs, through one nvidia-smi that reports again and again."""

    method = "nvidia-smi-power"

    def __init__(self):
        if not shutil.which("nvidia-smi"):
            raise OSError("no nvidia-smi")
        query = ["nvidia-smi", "--format=csv,noheader,nounits"]
        done = subprocess.run(query + ["--query-gpu=name"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, text=True)
        if done.returncode:
            raise OSError("nvidia-smi failed")
        self.names = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        self.latest = None
        # Waited for last: what it takes itself is not the program's.
        self.process = subprocess.Popen(query + ["--query-gpu=power.draw", "-lms", "500"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.first = threading.Event()
        threading.Thread(target=self.read, daemon=True).start()
        self.first.wait(10)

    def read(self):
        sample = []
        for line in self.process.stdout:
            try:
                sample.append(float(line))
            except ValueError:
                return
            if len(sample) == len(self.names):
                self.latest, sample = sum(sample), []
                self.first.set()

    def watts(self):
        return self.latest

    def counted(self):
        return None


def gpus():
    for kind in (Nvml, Smi):
        try:
            found = kind()
        except (OSError, AttributeError, subprocess.SubprocessError):
            continue
        return found if found.names else None
    return None


class Meter:
    """Measures all descendants of this process, from start to stop."""

    def __init__(self):
        self.gpus = gpus()
        self.done = threading.Event()
        self.peak, self.joules, self.sampled, self.crowded = 0, 0.0, 0, False
        self.held, self.looks = 0, 0  # bytes in all looks that saw something, and how many did
        self.helpers, self.threads = set(), []
        if isinstance(self.gpus, Smi):
            self.helpers.add(self.gpus.process.pid)

    def start(self):
        # Children that were waited for until now are not the program's.
        self.before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.threads = [threading.Thread(target=self.watch_memory, daemon=True)]
        if self.gpus is not None:
            self.threads.append(threading.Thread(target=self.watch_gpus, daemon=True))
        for t in self.threads:
            t.start()

    def watch_memory(self):
        while True:
            now = descendants(os.getpid(), self.helpers)
            held = resident(now)
            self.peak = max(self.peak, held)
            self.held, self.looks = self.held + held, self.looks + (held > 0)
            if sum(now.values()) > MOST:
                self.crowded = True
                for p in now:
                    try:
                        os.kill(p, signal.SIGKILL)
                    except OSError:
                        pass
                continue
            if self.done.wait(EVERY):
                return

    def watch_gpus(self):
        last, at = self.gpus.watts(), time.monotonic()
        while True:
            ended = self.done.wait(GPU_EVERY)
            now, then = self.gpus.watts(), time.monotonic()
            if now is not None and last is not None:
                self.joules += (now + last) / 2 * (then - at)
                self.sampled += 1
            last, at = now, then
            if ended:
                return

    def stop(self):
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        counted = self.gpus.counted() if self.gpus is not None else None
        self.done.set()
        for t in self.threads:
            t.join(30)
        if isinstance(self.gpus, Smi):
            self.gpus.process.kill()
            self.gpus.process.wait()
        cpu = used.ru_utime + used.ru_stime - self.before.ru_utime - self.before.ru_stime
        # Of one process; that of another, before the program's, says nothing.
        largest = used.ru_maxrss * 1024 if used.ru_maxrss > self.before.ru_maxrss else 0
        found = {
            "cpuSeconds": max(0.0, cpu), "peakBytes": max(self.peak, largest),
            "meanBytes": self.held // self.looks if self.looks else 0, "cpuModel": cpu_model(),
            "cpus": os.cpu_count() or 0, "memoryBytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        }
        if self.gpus is not None:
            found["gpus"] = self.gpus.names
            if counted is not None:
                found["gpuJoules"], found["gpuMethod"] = counted, self.gpus.method
            elif self.sampled:
                found["gpuJoules"], found["gpuMethod"] = self.joules, self.gpus.method.replace("energy", "power")
        return found


def cpu_model():
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            for line in f:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""
