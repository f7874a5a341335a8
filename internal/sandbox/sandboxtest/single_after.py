

# What Python lacks here: the names of modules and of their members. What else a probe
# does not find is a mistake of the probe, which then proves nothing.
_LACKS = frozenset("""
pwd
fork getresuid getsid killpg mknod pipe posix_spawn sched_setaffinity sched_setscheduler
setgroups setpriority setuid setxattr
AF_NETLINK AF_UNIX SOCK_RAW SOCK_SEQPACKET
clock_settime
""".split())


def run_attempt(spec):
    """Runs one probe here: there are no children, and nothing of it outlives it."""
    try:
        verdict = _judge(spec)
    except (AttributeError, ImportError) as e:
        verdict = dict(verdict="blocked" if e.name in _LACKS else "broken", detail="%s: %s" % (type(e).__name__, e))
    except NotImplementedError as e:  # it does not exist
        verdict = dict(verdict="blocked", detail="%s: %s" % (type(e).__name__, e))
    except RuntimeError as e:  # a thread that would wait forever
        verdict = dict(verdict="blocked", detail="RuntimeError: %s" % e)
    except BaseException as e:
        verdict = dict(verdict="broken", detail="%s: %s" % (type(e).__name__, e))
    print("\nPROBE " + json.dumps(verdict), flush=True)
