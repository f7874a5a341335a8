"""What a traceback shows."""

import json

from sallyport_guest.report import render


def own():
    return json.loads("{")


def shown(function):
    try:
        function()
    except Exception as e:
        return render(e, False).splitlines()
    raise AssertionError("no exception")


def test_frames_of_libraries_take_one_line():
    lines = shown(own)
    ours = [i for i, line in enumerate(lines) if "test_report.py" in line]
    theirs = [i for i, line in enumerate(lines) if "/json/" in line]
    assert lines[ours[-1] + 1].strip() == 'return json.loads("{")', lines
    assert len(theirs) >= 2 and theirs == list(range(theirs[0], theirs[0] + len(theirs))), lines
    assert lines[-1].startswith("json.decoder.JSONDecodeError: ")


def test_causes_are_folded_too():
    def both():
        try:
            own()
        except ValueError as e:
            raise KeyError("x") from e

    lines = shown(both)
    assert sum("/json/" in line for line in lines) >= 2
    assert not any("raise JSONDecodeError" in line for line in lines), lines
