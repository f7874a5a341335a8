"""Our method `codecarbon` beside the real codecarbon in process mode, in one
run: a busy program, then one that sleeps. Run by test/carbon/run.

Both programs run for the same wall time: at the same time, so that what else the
machine does meets both, or with `apart` one after the other, each with a processor
of its own. On a machine that does much else the figures mean little: whoever
gets more processor time takes more energy."""

import json
import logging
import os
import subprocess
import sys

SECONDS = float(sys.argv[1])
APART = "apart" in sys.argv[2:]
BIN = os.environ["SALLYPORT_BIN"]
logging.disable(logging.CRITICAL)

BUSY = """
import time
end = time.monotonic() + %f
x = 0
while time.monotonic() < end:
    for i in range(100000):
        x += i * i
"""
SLEEPY = """
import time
end = time.monotonic() + %f
while time.monotonic() < end:
    sum(i * i for i in range(20000))
    time.sleep(0.25)
"""
REAL = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from codecarbon import OfflineEmissionsTracker
code = compile(sys.stdin.read(), "program", "exec")
tracker = OfflineEmissionsTracker(country_iso_code="FRA", tracking_mode="process", measure_power_secs=5, save_to_file=False, log_level="critical")
tracker.start()
exec(code, {})
tracker.stop()
d = tracker.final_emissions_data
print(json.dumps({"cpu": d.cpu_energy * 3.6e6, "ram": d.ram_energy * 3.6e6, "total": d.energy_consumed * 3.6e6, "seconds": d.duration, "grams": d.emissions * 1000}))
"""


def beside(program):
    limit = int(SECONDS * 1.5 + 60)
    env = dict(os.environ, SALLYPORT_CARBON_METHOD="codecarbon", SALLYPORT_CARBON_LOCATION="FRA", SALLYPORT_TIMEOUTS_MAX=str(limit),
               SALLYPORT_TIMEOUTS_WHOLE_RUN=str(2 * limit))
    commands = {
        "real": ([sys.executable, "-c", REAL], None),
        "ours": ([BIN, "run", "--json", "--timeout", str(limit), "-"], env),
    }
    running, answers = {}, {}
    for name, (command, environ) in commands.items():
        p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
        p.stdin.write(program % SECONDS)
        p.stdin.close()
        running[name] = p
        if APART:
            answers[name] = p.stdout.read()
    for name, p in running.items():
        answers.setdefault(name, None if APART else p.stdout.read())
        p.wait()
    r, o = json.loads(answers["real"]), json.loads(answers["ours"])
    if o["status"] != "success":
        raise SystemExit(f"our run failed: {o}")
    energy = o["usage"]["energy"]
    return r, {"cpu": energy["cpu"]["joules"], "ram": energy["memory"]["joules"], "total": energy["joules"],
               "seconds": energy["memory"]["inputs"]["wallSeconds"], "grams": o["usage"]["emissions"]["grams"]}


failed = False
print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, {'one after the other' if APART else 'at the same time'}")
for name, program, held in (("busy", BUSY, ("cpu", "ram", "total")), ("mostly sleeping", SLEEPY, ("ram", "total"))):
    real, ours = beside(program)
    print(f"{name}, {SECONDS:g} s:")
    print(f"  {'':8}{'codecarbon':>12}{'sallyport':>12}{'difference':>12}")
    for key in ("cpu", "ram", "total", "seconds", "grams"):
        off = (ours[key] - real[key]) / real[key] if real[key] else float("nan")
        wrong = key in held and not abs(off) <= 0.05
        failed = failed or wrong
        unit = {"seconds": "", "grams": ""}.get(key, " J")
        print(f"  {key:8}{real[key]:12.5g}{ours[key]:12.5g}{off:12.1%}{unit}{'   more than 5 %' if wrong else ''}")
sys.exit(1 if failed else 0)
