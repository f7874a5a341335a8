"""What the documents say about files, commands and settings is so."""

import json
import os
import re
import subprocess

import pytest
from conftest import ROOT

DOCUMENTS = sorted(
    p
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "bench/**/*.md")
    for p in ROOT.glob(pattern)
    if not any(part.startswith(".") or part == "node_modules" for part in p.relative_to(ROOT).parts)
)


def by_name(path):
    return str(path.relative_to(ROOT))


def read(path):
    return path.read_text(encoding="utf-8")


def slug(heading):
    """The anchor that code forges give a heading."""
    plain = re.sub(r"[`*_]|\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", plain))


def prose(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def anchors(path):
    return {slug(h) for h in re.findall(r"^#+ +(.+)$", prose(read(path)), re.M)}


def test_there_are_documents():
    names = {by_name(p) for p in DOCUMENTS}
    assert {"README.md", "docs/ARCHITECTURE.md", "docs/THREATMODEL.md", "docs/RATIONALE.md", "examples/README.md"} <= names


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_name)
def test_links_lead_somewhere(document):
    broken = []
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose(read(document))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_name)
def test_named_files_exist(document):
    """Paths in backquotes that begin with one of our folders are there. Names of
    tests (package.Test) are internal/arch's affair."""
    missing = []
    for name in re.findall(r"`((?:internal|cmd|docs|examples|scripts|test|bench|\.ci)/[\w./-]+)`", read(document)):
        if not re.search(r"\.Test[A-Z]", name) and not (ROOT / name.rstrip("/")).exists():
            missing.append(name)
    assert not missing


def commands(sallyport):
    """The words of every command, from the program's own help."""

    def help_of(*words):
        return subprocess.run([sallyport, *words, "--help"], capture_output=True, text=True, timeout=120, check=True).stdout

    found = [(name,) for name in re.findall(r"^  ([a-z][a-z-]*) +[A-Z]", help_of().split("\nFlags:\n")[0], re.M)]
    for (name,) in tuple(found):
        for section in help_of(name).split("\nCommands:\n")[1:]:
            section = section.split("\nFlags:\n")[0]
            found += [tuple(words.split()) for words in re.findall(r"^  ([a-z-]+ [a-z-]+)(?: \([a-z]+\))? +[A-Z]", section, re.M)]
    return found


def documented_commands(known):
    """(document, the command's words, its line) of every command that is shown."""
    first = "|".join(sorted({words[0] for words in known}))
    pattern = re.compile(rf"(?:^|[\s`(])(?:bin/|\./)?sallyport ((?:{first})\b[^\n`|&;]*)")
    for document in DOCUMENTS:
        for line in pattern.findall(read(document)):
            line = line.partition(" -- ")[0]  # what follows is another program's
            words = line.split()
            yield by_name(document), words[: 2 if tuple(words[:2]) in known else 1], line


def test_documented_flags_exist(sallyport):
    known = commands(sallyport)
    assert {("serve",), ("run",), ("doctor",), ("servers", "test")} <= set(known)
    found, help_texts = 0, {}
    for where, command, line in documented_commands(known):
        key = tuple(command)
        if key not in help_texts:
            help_texts[key] = subprocess.run([sallyport, *command, "--help"], capture_output=True, text=True, timeout=120, check=True).stdout
        for flag in re.findall(r"--[a-z][a-z-]*", line):
            found += 1
            assert re.search(rf"{flag}\b", help_texts[key]), f"{where}: {' '.join(command)} has no {flag}: {line}"
    assert found >= 5, "the documents show no commands: is the pattern still right?"


def test_documented_settings_exist():
    """Each environment variable that a document names is one that the program
    or its tests read. CONFIGURATION.md is written from the declarations."""
    known = read(ROOT / "docs/CONFIGURATION.md") + "".join(
        read(p)
        for folder in ("internal", "cmd", "test", ".ci", "scripts", "bench")
        for p in (ROOT / folder).rglob("*")
        if p.is_file() and p.suffix in {".go", ".py", ""} and not {"testdata", "__pycache__"} & set(p.parts)
    )
    unknown = {
        (by_name(d), name)
        for d in DOCUMENTS
        for name in re.findall(r"\b(?:SALLYPORT|MCP_BRIDGE)_[A-Z][A-Z_]*[A-Z]\b", read(d))
        if not re.search(rf"\b{name}\b", known)
    }
    assert not unknown


def test_readme_gives_its_two_commands():
    """One that does the main job, one that passes the tests; both exist."""
    text = read(ROOT / "README.md")
    blocks = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S))
    assert ".ci/run" in blocks
    for script in re.findall(r"^\s*((?:scripts|\.ci)/[\w-]+)", blocks, re.M):
        assert (ROOT / script).stat().st_mode & 0o111, f"{script} is not executable"


def test_readme_is_short():
    """Details belong in the guide."""
    assert len(read(ROOT / "README.md").split()) < 900


def test_scripts_of_the_documents_run_somewhere():
    """Each script that a document names is run by a step of .ci/run or a suite of
    .ci/full, as it is named. What only makes files of the tree is checked by tests of
    its own."""
    run = {f: read(f) for folder in (".ci/steps", ".ci/suites") for f in [*(ROOT / folder).iterdir(), ROOT / ".ci/lib"]}
    elsewhere = {
        ".ci/run": "test/bareroot/run runs it",
        ".ci/full": "it runs the others",
        ".ci/load": "it makes a machine busy",
        "scripts/vulnerabilities": "before a release: its databases are elsewhere",
        "scripts/lock": "it changes the lists that the others use",
        "scripts/configuration": "internal/settings tests that its result is up to date",
        "scripts/carbontables": "it changes tables of the program",
    }
    unrun = set()
    for document in DOCUMENTS:
        for name in re.findall(r"(?<![\w/])((?:test|scripts)/(?:[\w-]+/run|[\w-]+)|\.ci/[\w-]+)(?![\w/.-])", read(document)):
            script = ROOT / name
            if script.is_file() and script.stat().st_mode & 0o111 and name not in elsewhere and not any(name in text for text in run.values()):
                unrun.add((by_name(document), name))
    assert not unrun
    for name in elsewhere:
        assert (ROOT / name).exists(), f"{name} is gone: take it off the list"


def test_no_database_is_no_pass():
    """The check for releases fails where the databases are out of reach."""
    done = subprocess.run(
        [ROOT / "scripts/vulnerabilities"], env=os.environ | {"GOVULNDB": "http://127.0.0.1:1"}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "nothing was checked" in done.stderr


def test_images_and_packages_are_named_by_hash():
    """Base images by digest, Python packages with hashes, npm packages with integrity."""
    loose = []
    for path in ROOT.glob("deploy/**/Dockerfile"):
        text = read(path)
        arguments = dict(re.findall(r"^ARG (\w+)=(\S+)", text, re.M))
        stages = set(re.findall(r"^FROM \S+ AS (\S+)", text, re.M))
        for image in re.findall(r"^FROM (\S+)", text, re.M):
            image = re.sub(r"\$\{(\w+)\}", lambda m: arguments.get(m[1], ""), image)
            if image not in stages and not re.search(r"@sha256:[0-9a-f]{64}$", image):
                loose.append((by_name(path), image))
    lists = [p for pattern in ("scripts/python/*.txt", "test/*/requirements.txt", "deploy/*/requirements.txt") for p in ROOT.glob(pattern)]
    assert len(lists) >= 6
    for path in lists:
        for package in re.split(r"(?m)^(?=\S)", re.sub(r"(?m)^ *#.*\n", "", read(path))):
            if package.strip() and "--hash=sha256:" not in package:
                loose.append((by_name(path), package.split()[0]))
    for path in [*ROOT.glob("scripts/*/package-lock.json"), *ROOT.glob("test/*/package-lock.json")]:
        for name, package in json.loads(read(path))["packages"].items():
            if name and not package.get("link") and "integrity" not in package and not package.get("inBundle"):
                loose.append((by_name(path), name))
    assert not loose


def test_readme_main_job(sallyport, environment, tmp_path):
    """The first command, past the build that made the executable."""
    line = next(l for l in read(ROOT / "README.md").splitlines() if l.startswith("CGO_ENABLED=0 go build"))
    command = line.partition(" && ")[2].replace("bin/sallyport", sallyport)
    done = subprocess.run(["bash", "-c", command], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("in a sandbox: 3.")
