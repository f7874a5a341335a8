"""What wheels have to fit: this Python, its platform, and where its packages go.

internal/image/build/target.go reads it.
"""

from . import BUILTINS as __builtins__

import os, platform, sys, sysconfig


def libc():
    if sys.platform == "wasi":
        return "wasi", [0, 0]
    text = ""
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        pass
    if text.startswith("glibc "):
        return "glibc", [int(n) for n in text[6:].split(".")[:2]]
    import glob, re, subprocess

    for loader in glob.glob("/lib/ld-musl-*.so.1"):
        said = subprocess.run([loader], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode()
        found = re.search(r"Version (\d+)\.(\d+)", said)
        if found:
            return "musl", [int(n) for n in found.groups()]
    return "", [0, 0]


def full(info):
    version = "%d.%d.%d" % info[:3]
    return version if info[3] == "final" else version + info[3][0] + str(info[4])


def target():
    name, number = libc()
    paths = sysconfig.get_paths()
    return {
        "version": list(sys.version_info[:3]),
        "tag": sys.implementation.cache_tag,
        "abi": getattr(sys, "abiflags", ""),
        "libc": name, "libc_version": number,
        "purelib": paths["purelib"], "platlib": paths["platlib"], "scripts": paths["scripts"], "data": paths["data"],
        "markers": {
            "implementation_name": sys.implementation.name, "implementation_version": full(sys.implementation.version),
            "os_name": os.name, "platform_machine": platform.machine(), "platform_release": platform.release(),
            "platform_system": platform.system(), "platform_version": platform.version(),
            "python_full_version": platform.python_version(), "platform_python_implementation": platform.python_implementation(),
            "python_version": ".".join(platform.python_version_tuple()[:2]), "sys_platform": sys.platform,
        },
    }  # fmt: skip
