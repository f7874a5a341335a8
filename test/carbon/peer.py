"""The real codecarbon against our tables, our dashboard and our emissions.csv.

Run by test/carbon/run, in an empty directory."""

import json
import logging
import math
import os
import subprocess
import sys
import time

import pandas as pd
import psutil
from codecarbon import OfflineEmissionsTracker
from codecarbon.core.cpu import TDP
from codecarbon.core.emissions import Emissions
from codecarbon.core.units import Energy
from codecarbon.external.geography import CloudMetadata, GeoMetadata
from codecarbon.external.ram import RAM
from codecarbon.input import DataSource
from codecarbon.output_methods.emissions_data import EmissionsData
from codecarbon.output_methods.file import FileOutput

logging.disable(logging.CRITICAL)
PEER, BIN = os.environ["SALLYPORT_TEST_PEER"], os.environ["SALLYPORT_BIN"]
EXPERIMENT = "8edb03e1-1111-4222-8333-444455556666"
failures = []


def check(what, ok, detail=""):
    print(("ok    " if ok else "FAIL  ") + what + ("" if ok else f": {detail}"))
    if not ok:
        failures.append(what)


def tables():
    source = DataSource()
    table = source.get_cpu_power_data()
    rows = list(table["Name"])
    names = [
        "Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz", "AMD EPYC 7763 64-Core Processor", "Intel(R) Xeon(R) Processor",
        "Intel(R) Xeon(R) Processor @ 2.50GHz", "12th Gen Intel(R) Core(TM) i7-12700", "Neoverse-N1", "Apple M2",
        "Intel(R) Core(TM) i7-8650U CPU @ 1.90GHz", "AMD Ryzen 9 5950X 16-Core Processor", "Cortex-A72",
        "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz", "AMD EPYC 7B12", "Intel(R) Core(TM)2 Duo CPU E8400 @ 3.00GHz",
    ] + [str(n) for n in rows[::40]] + [f"{n} CPU @ 2.50GHz" for n in rows[7::160]]
    finder = TDP.__new__(TDP)
    want_cpus = []
    for name in names:
        try:
            match = finder._get_matching_cpu(name, table)
            want_cpus.append(finder._get_cpu_constant_power(match, table) if match else None)
        except ValueError:
            want_cpus.append(None)

    emissions = Emissions(source)
    one = Energy.from_energy(kWh=1)
    want_places, places = [], []

    def place(text, grams):
        places.append(text)
        want_places.append(grams)

    for code, data in sorted(source.get_global_energy_mix_data().items()):
        geo = GeoMetadata(country_iso_code=code, country_name=data["country_name"])
        place(code, emissions.get_private_infra_emissions(one, geo) * 1000)
    for country, name, regions in (
        ("USA", "United States", [r for r in source.get_country_emissions_data("usa") if not r.startswith("_")]),
        ("CAN", "Canada", ["quebec", "ontario", "alberta", "british columbia", "nova scotia", "nunavut", "yukon"]),
        ("SWE", "Sweden", ["SE1", "SE2", "SE3", "SE4"]),
        ("NOR", "Norway", ["NO1", "NO2", "NO3", "NO4", "NO5"]),
        ("CHN", "China", ["beijing", "guangdong", "inner mongolia", "xinjiang", "sichuan"]),
    ):
        for region in regions:
            geo = GeoMetadata(country_iso_code=country, country_name=name, region=region)
            place(f"{country}/{region}", emissions.get_private_infra_emissions(one, geo) * 1000)
    for region in ("europe-west9", "us-central1", "asia-south1"):
        place(f"gcp/{region}", emissions.get_cloud_emissions(one, CloudMetadata(provider="gcp", region=region)) * 1000)

    memory = [0.1, 0.5, 2, 2.1, 4, 16, 17, 33, 64, 65, 128, 129, 256, 512, 755, 1024, 2048, 4096]
    ram = RAM()
    ram.is_arm_cpu = False
    want_memory = [ram._calculate_ram_power(gb) for gb in memory]

    answer = json.loads(subprocess.run(
        [PEER, "tables"], input=json.dumps({"cpus": names, "places": places, "memory": memory}), capture_output=True, text=True, check=True).stdout)
    for what, asked, want, got in (
        ("processors", names, want_cpus, answer["cpus"]), ("places", places, want_places, answer["places"]), ("memory", memory, want_memory, answer["memory"]),
    ):
        wrong = [(a, w, g) for a, w, g in zip(asked, want, got)
                 if (w is None) != (g is None) or w is not None and not math.isclose(w, g, rel_tol=1e-9, abs_tol=1e-9)]
        check(f"{len(asked)} {what} as codecarbon has them", not wrong, wrong[:5])


def post():
    peer = subprocess.Popen([PEER, "api"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    url = peer.stdout.readline().strip()
    tracker = OfflineEmissionsTracker(
        country_iso_code="FRA", project_name="peer", measure_power_secs=1, api_call_interval=2, save_to_file=False, save_to_api=True,
        api_endpoint=url, api_key="cpt_peer", experiment_id=EXPERIMENT, tracking_mode="process", log_level="critical")
    tracker.start()
    end = time.time() + 7
    while time.time() < end:
        sum(range(10000))
    tracker.stop()
    peer.stdin.close()
    got = json.loads(peer.stdout.read())
    peer.wait()
    runs, emissions = got["runs"], got["emissions"]
    check("codecarbon makes a run on our dashboard", len(runs) == 1 and runs[0]["body"]["experiment_id"] == EXPERIMENT, got["requests"])
    posted = sum(1 for r in got["requests"] if r == "POST /emissions")
    check("our dashboard takes everything that codecarbon posts", posted == len(emissions) and posted >= 2, got["requests"])
    known = {
        "timestamp", "run_id", "duration", "emissions_sum", "emissions_rate", "cpu_power", "gpu_power", "ram_power", "cpu_energy", "gpu_energy",
        "ram_energy", "energy_consumed", "cpu_utilization_percent", "gpu_utilization_percent", "ram_utilization_percent", "wue"}
    check("it posts the fields that we post", all(set(e) == known for e in emissions), [sorted(set(e) ^ known) for e in emissions])
    return set(runs[0]["body"]) if runs else set()


def ours(run_fields):
    """We post to the same dashboard, and codecarbon reads our CSV."""
    peer = subprocess.Popen([PEER, "api"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    url = peer.stdout.readline().strip()
    path = os.path.join(os.getcwd(), "emissions.csv")
    env = dict(os.environ, CODECARBON_API_ENDPOINT=url, CODECARBON_API_KEY="cpt_peer", CODECARBON_EXPERIMENT_ID=EXPERIMENT,
               SALLYPORT_CARBON_LOCATION="FRA", SALLYPORT_CARBON_CSV=path, SALLYPORT_CARBON_METHOD="codecarbon")
    for _ in range(2):
        subprocess.run([BIN, "run", "-c", "sum(range(10**7))"], env=env, check=True, capture_output=True)
    subprocess.run([BIN, "carbon", "sync"], env=env, check=True, capture_output=True)
    peer.stdin.close()
    got = json.loads(peer.stdout.read())
    peer.wait()
    check("our runs are on the dashboard, one for each session", len(got["runs"]) == 2, got["requests"])
    check("with the fields of codecarbon's", all(set(r["body"]) == run_fields for r in got["runs"]), run_fields)
    data = pd.read_csv(path)
    check("pandas reads our CSV", len(data) >= 2 and list(data.columns) == list(EmissionsData.__dataclass_fields__), list(data.columns))
    check("its numbers are numbers", all(pd.api.types.is_numeric_dtype(data[c]) for c in
          ("duration", "emissions", "emissions_rate", "cpu_power", "cpu_energy", "ram_energy", "energy_consumed", "pue", "cpu_count")), data.dtypes)
    check("its sum is what the dashboard got", math.isclose(
        data["energy_consumed"].sum(), sum(e["energy_consumed"] for e in got["emissions"]), rel_tol=1e-6), data["energy_consumed"].sum())
    check("the country is there", set(data["country_iso_code"]) == {"FRA"} and set(data["country_name"]) == {"France"})
    out = FileOutput("emissions.csv", os.getcwd())
    valid = out.has_valid_headers(EmissionsData(**{f: None for f in EmissionsData.__dataclass_fields__}))
    check("codecarbon takes its header for its own", bool(valid), valid)
    before = len(data)
    tracker = OfflineEmissionsTracker(country_iso_code="FRA", output_dir=os.getcwd(), measure_power_secs=1, log_level="critical", tracking_mode="process")
    tracker.start()
    time.sleep(1.5)
    tracker.stop()
    again = pd.read_csv(path)
    check("codecarbon appends to it", len(again) == before + 1 and not os.path.exists(path + ".bak"), os.listdir("."))
    subprocess.run([BIN, "run", "-c", "1"], env=env, check=True, capture_output=True)
    last = pd.read_csv(path)
    check("and we append after it", len(last) > before + 1 and last["codecarbon_version"].iloc[-1].startswith("sallyport"), last["codecarbon_version"])


tables()
ours(post())
sys.exit(1 if failures else 0)
