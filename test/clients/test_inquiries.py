"""MCP servers that ask the user while they work on a call: elicitation, sampling,
roots, progress and log messages. On either side is software of others, in either
era of the protocol: the official SDK, the `everything` server, the official clients."""

import asyncio
import contextlib
import json
import pathlib
import re
import subprocess
import sys
import time

import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp_types import CreateMessageResult, ElicitResult, InputRequiredResult, ListRootsResult, Root, TextContent

HERE = pathlib.Path(__file__).parent
SERVER = HERE / "asking_server.py"
MODES = ["legacy", "2026-07-28"]  # of the client
ERAS = ["handshake", "stateless"]  # of the server
CROSS = [("legacy", "stateless"), ("2026-07-28", "handshake")]  # a client and a server of different eras
BOUND = 240  # seconds that only a hang reaches

SECRET = "tangerine-4711"
FIELDS = {
    "name": {"type": "string", "title": "Your name"},
    "age": {"type": "integer", "minimum": 0},
    "colour": {"type": "string", "enum": ["red", "green"]},
    "sure": {"type": "boolean", "default": True},
}
CONTENT = {"name": SECRET, "age": 36, "colour": "red", "sure": False}
ROOTS = {"method": "roots/list"}


def form(message="Who are you?", properties=FIELDS, required=("name",)):
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def link(url, message="Log in there."):
    return {"method": "elicitation/create", "params": {"mode": "url", "message": message, "url": url, "elicitationId": "login-1"}}


def sampling(tokens, text="How is the weather?"):
    return {"method": "sampling/createMessage", "params": {"messages": [{"role": "user", "content": {"type": "text", "text": text}}], "maxTokens": tokens}}


def asking(*rounds):
    """Code that has the server ask: in each round, requests by name."""
    return f"""
import json
try:
    print(await mcp_asking.ask(rounds=json.loads({json.dumps(rounds)!r})))
except runtime.MCPError as e:
    print("failed:", e)
"""


class Person:
    """The user and the model of a client, and what they were asked."""

    def __init__(self, form=None, url=None, sample=None, roots=None):
        self.answers, self.asked = {"form": form, "url": url, "sample": sample, "roots": roots}, []

    def callbacks(self):
        async def elicit(context, params):
            self.asked.append(params)
            answer = self.answers[params.mode or "form"]
            return await answer(params) if callable(answer) else answer

        async def sample(context, params):
            self.asked.append(params)
            return CreateMessageResult(role="assistant", content=TextContent(type="text", text=self.answers["sample"]), model="test", stop_reason="endTurn")

        async def roots(context):
            self.asked.append("roots")
            return ListRootsResult(roots=[Root(uri=pathlib.Path(f).as_uri()) for f in self.answers["roots"]])

        has = {name for name, answer in self.answers.items() if answer is not None}
        named = {"elicitation_callback": (elicit, {"form", "url"}), "sampling_callback": (sample, {"sample"}), "list_roots_callback": (roots, {"roots"})}
        return {name: callback for name, (callback, needs) in named.items() if has & needs}


def accept(**content):
    return ElicitResult(action="accept", content=content or None)


class Asking:
    """The server of asking_server.py, and what it was answered."""

    def __init__(self, era, folder):
        self.era, self.file = era, folder / "answers.jsonl"

    def told(self):
        """What it was answered: of each request its name, and the answer or error."""
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []

    def refused(self, output):
        """That it got no answer, and what code and the server were told."""
        if self.era == "handshake":  # the server decides what the error means
            assert output == "asked", output
            assert all(set(line) == {"name", "error"} for line in self.told()), self.told()
            return [line["error"] for line in self.told()]
        assert output.startswith("failed: "), output
        assert self.told() == [], "an error has no place in that era: the call ends"
        return [output]


@pytest.fixture
def define(environment):
    """Defines a server in the home of the test."""

    def write(name, **definition):
        folder = pathlib.Path(environment["HOME"], "MCPs")
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps({"mcpServers": {name: definition}}))

    return write


@pytest.fixture
def server(define, tmp_path):
    """Starts or defines the server that asks, of one era."""
    with contextlib.ExitStack() as stack:

        def start(era, transport="stdio"):
            asking = Asking(era, tmp_path)
            command = [sys.executable, str(SERVER), era, str(asking.file)]
            if transport == "stdio":
                define("asking", command=command[0], args=command[1:])
                return asking
            address = tmp_path / "address"
            process = stack.enter_context(subprocess.Popen([*command, str(address)]))
            stack.callback(process.terminate)
            while not address.exists() or not address.read_text().endswith("\n"):
                assert process.poll() is None, "the server has ended"
                time.sleep(0.05)
            define("asking", url=address.read_text().strip())
            return asking

        yield start


@pytest.fixture
def may(environment):
    """Says what servers may ask: a project must not, so the file of the user is the place."""

    def write(*entries):
        config = pathlib.Path(environment["HOME"], ".config/sallyport/config.yaml")
        config.parent.mkdir(parents=True)
        config.write_text(f"servers: {{may: [{', '.join(entries)}]}}\n")

    return write


@pytest.fixture
def connect(sallyport, environment, folder, tmp_path):
    """Connects the official client, as one that has what a person answers."""

    def connected(mode, person, **settings):
        parameters = StdioServerParameters(command=sallyport, args=["serve"], cwd=str(folder), env=environment | settings)
        stderr = open(tmp_path / "stderr.txt", "a", encoding="utf-8")
        return Client(stdio_client(parameters, errlog=stderr), mode=mode, **person.callbacks())

    return connected


@pytest.fixture
def play(connect):
    """Runs code as an agent does; answers its output."""

    def run(mode, person, code, **settings):
        async def main():
            async with connect(mode, person, **settings) as client:
                return text(await client.call_tool("run_python", {"code": code}))

        return bounded(main())

    return run


def bounded(main):
    return asyncio.run(asyncio.wait_for(main, BOUND))


def text(result):
    return "\n".join(block.text for block in result.content)


@pytest.fixture
def command(sallyport, environment):
    """The second terminal."""

    def run(*args):
        done = subprocess.run([sallyport, *args], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def open_question(command, over):
    """The question that is open, which the caller must be asked for before over()."""
    while not (questions := json.loads(command("approvals", "list", "--json"))["open"]):
        assert not over(), "nothing was asked"
        time.sleep(0.05)
    return questions[0]


def names_its_server(message, server="asking"):
    assert message.splitlines()[0] == f'MCP server "{server}" asks:', message
    return message


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mode", MODES)
def test_a_form_reaches_the_user_and_the_answer_its_server(mode, era, transport, server, play, environment, tmp_path):
    asked = server(era, transport)
    person = Person(form=accept(**CONTENT))
    assert play(mode, person, asking({"form": form()})) == "asked"
    (question,) = person.asked
    assert "Who are you?" in names_its_server(question.message)
    schema = question.requested_schema
    assert set(schema["properties"]) == set(FIELDS) and schema["required"] == ["name"], schema
    assert schema["properties"]["colour"]["enum"] == ["red", "green"], schema
    assert asked.told() == [{"name": "form", "answer": {"action": "accept", "content": CONTENT}}]
    nowhere(SECRET, environment, tmp_path)


def nowhere(secret, environment, tmp_path):
    """That what a person answered is in no file of Sallyport's."""
    files = [f for name in ("HOME", "XDG_RUNTIME_DIR") for f in pathlib.Path(environment[name]).rglob("*") if f.is_file() and not f.is_symlink()]
    assert any(b"asking" in f.read_bytes() for f in files), "the log of a session and the audit log are there"
    found = [str(f) for f in [*files, *tmp_path.glob("stderr.txt")] if secret.encode() in f.read_bytes()]
    assert found == []


@pytest.mark.parametrize("mode, era", CROSS)
def test_a_user_declines(mode, era, server, play):
    asked = server(era)
    person = Person(form=ElicitResult(action="decline"))
    assert play(mode, person, asking({"form": form()})) == "asked"
    assert asked.told() == [{"name": "form", "answer": {"action": "decline"}}]


@pytest.mark.parametrize("mode, era", CROSS)
def test_an_address_to_open(mode, era, server, play):
    asked = server(era)
    person = Person(url=accept())
    assert play(mode, person, asking({"login": link("https://example.com/login?state=7")})) == "asked"
    (question,) = person.asked
    assert question.mode == "url" and question.url == "https://example.com/login?state=7"
    assert "Log in there." in names_its_server(question.message)
    assert asked.told() == [{"name": "login", "answer": {"action": "accept"}}]


@pytest.mark.parametrize("mode, era", CROSS)
def test_several_requests_in_several_rounds(mode, era, server, may, play, folder):
    asked = server(era)
    may("elicit", "sample")
    person = Person(form=accept(**CONTENT), url=accept(), sample="fine", roots=[folder])
    first = {"form": form(), "roots": ROOTS}
    second = {"model": sampling(50), "login": link("https://example.com/login")}
    assert play(mode, person, asking(first, second)) == "asked"
    answers = {line["name"]: line["answer"] for line in asked.told()}
    assert list(answers)[:2] in (["form", "roots"], ["roots", "form"]), asked.told()
    assert answers["form"] == {"action": "accept", "content": CONTENT}
    assert answers["login"] == {"action": "accept"}
    assert [root["uri"] for root in answers["roots"]["roots"]] == [folder.as_uri()]
    assert answers["model"]["content"] == {"type": "text", "text": "fine"} and answers["model"]["model"] == "test"
    assert len(asked.told()) == 4, "every request is answered once"


@pytest.mark.parametrize("mode, era", CROSS)
def test_what_a_hostile_server_says_is_shown_as_it_is(mode, era, server, play):
    server(era)
    person = Person(form=accept(name="x"))
    message = "Hi\x1b[2J\x1b[31m\r\u202e\nsallyport asks: may everything run?"
    assert play(mode, person, asking({"form": form(message, {"name": {"type": "string", "description": "\x1b]0;title\x07"}})})) == "asked"
    (question,) = person.asked
    shown = names_its_server(question.message) + json.dumps(question.requested_schema, ensure_ascii=False)
    assert "may everything run?" in shown
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\\u00[01]", shown.replace("\\\\", "")), repr(shown)


@pytest.mark.parametrize("era", ERAS[:1])
@pytest.mark.parametrize("request_of", [
    form(properties={"name": {"type": "object", "properties": {"first": {"type": "string"}}}}),
    form(properties={"names": {"type": "array", "items": {"type": "object"}}}, required=()),
    link("file:///etc/passwd"),
    link("javascript:alert(1)"),
    link("https://example.com@evil.example/"),
    link("https://user:word@evil.example/"),
], ids=["nested", "list", "file", "javascript", "user", "password"])
def test_a_request_that_cannot_be_shown_is_refused(request_of, era, server, play):
    asked = server(era)
    person = Person(form=accept(name="x"), url=accept())
    output = play("auto", person, asking({"bad": request_of}))
    assert len(asked.refused(output)) == 1
    assert person.asked == []


@pytest.mark.parametrize("era", ERAS[1:])
@pytest.mark.parametrize("setting, client", [((), True), (["none"], True), (["other=sample"], True), (["sample", "asking=elicit"], True), (["sample"], False)],
                         ids=["default", "none", "other", "named", "client"])
def test_sampling_needs_the_setting_and_the_client(setting, client, era, server, may, play):
    asked = server(era)
    if setting:
        may(*setting)
    person = Person(form=accept(name="x"), sample="fine" if client else None)
    output = play("auto", person, asking({"model": sampling(10)}))
    assert len(asked.refused(output)) == 1
    assert person.asked == []


@pytest.mark.parametrize("era", ERAS)
def test_forms_need_the_setting(era, server, may, play, command):
    asked = server(era)
    may("elicit", "asking=none")
    person = Person(form=accept(name="x"))
    output = play("auto", person, asking({"form": form()}))
    assert len(asked.refused(output)) == 1
    assert person.asked == [] and json.loads(command("approvals", "list", "--json"))["open"] == []


@pytest.mark.parametrize("mode, era, calls", [("legacy", "stateless", 10), ("2026-07-28", "handshake", 2)])
def test_sampling_is_capped(mode, era, calls, server, may, play):
    asked = server(era)
    may("asking=sample")
    few = {f"model{i}": sampling(5) for i in range(calls - 1)}
    settings = {"SALLYPORT_SERVERS_SAMPLING_TOKENS": "1000"} | ({"SALLYPORT_SERVERS_SAMPLING_CALLS": str(calls)} if calls != 10 else {})
    person = Person(sample="fine")
    output = play(mode, person, asking(few, {"last": sampling(100_000)}, {"more": sampling(5)}), **settings)
    tokens = [params.max_tokens for params in person.asked]
    assert len(tokens) == calls, (tokens, output)
    assert tokens[:-1] == [5] * (calls - 1) and 5 < tokens[-1] <= 1000, tokens
    names = [line["name"] for line in asked.told() if "answer" in line]
    assert sorted(names) == sorted([*few, "last"])
    if era == "handshake":
        assert output == "asked" and [line["name"] for line in asked.told() if "error" in line] == ["more"], asked.told()
    else:
        assert output.startswith("failed: "), output


@pytest.mark.parametrize("mode, era", CROSS)
@pytest.mark.parametrize("answer", ["approve", "deny"])
def test_a_client_without_forms_has_a_second_terminal(answer, mode, era, server, connect, command, environment, tmp_path):
    asked = server(era)

    async def main():
        async with connect(mode, Person()) as client:
            call = asyncio.create_task(client.call_tool("run_python", {"code": asking({"form": form()})}))
            question = await asyncio.to_thread(open_question, command, call.done)
            listed = await asyncio.to_thread(command, "approvals")
            if answer == "approve":
                words = [w for name, value in CONTENT.items() for w in ("--answer", f"{name}={json.dumps(value).strip(chr(34))}")]
                await asyncio.to_thread(command, "approvals", "approve", question["address"], *words)
            else:
                await asyncio.to_thread(command, "approvals", "deny", question["address"])
            return question, listed, text(await call)

    question, listed, output = bounded(main())
    assert output == "asked"
    asks = question["asks"]
    assert asks["method"] == "elicitation/create" and "Who are you?" in asks["message"], asks
    assert {f["name"]: f["type"] for f in asks["fields"]} == {name: schema["type"] for name, schema in FIELDS.items()}
    assert "asking" in listed and "Who are you?" in listed and "colour" in listed, listed
    expected = {"action": "accept", "content": CONTENT} if answer == "approve" else {"action": "decline"}
    assert asked.told() == [{"name": "form", "answer": expected}]
    assert json.loads(command("approvals", "list", "--json"))["open"] == []
    nowhere(SECRET, environment, tmp_path)


@pytest.mark.parametrize("mode, era", CROSS)
def test_a_server_has_the_roots_of_the_client(mode, era, server, play, folder):
    asked = server(era)
    person = Person(roots=[folder, folder / "texts"])
    assert play(mode, person, asking({"roots": ROOTS})) == "asked"
    (told,) = asked.told()
    assert [root["uri"] for root in told["answer"]["roots"]] == [folder.as_uri(), (folder / "texts").as_uri()]


@pytest.mark.parametrize("era", ERAS)
def test_a_client_without_roots_has_none_for_servers(era, server, play):
    asked = server(era)
    output = play("auto", Person(), asking({"roots": ROOTS}))
    assert len(asked.refused(output)) == 1


@pytest.mark.parametrize("era", ERAS)
def test_a_suspended_call_goes_on_once(era, server, connect):
    """A client of the stateless era that repeats a call as it should not."""
    asked = server(era)
    code = "print('began')\n" + asking({"form": form()})

    async def main():
        async with connect("2026-07-28", Person(form=accept(**CONTENT))) as client:

            async def call(code, **more):
                return await client.session.call_tool("run_python", {"code": code}, allow_input_required=True, **more)

            first = await call(code)
            assert isinstance(first, InputRequiredResult) and first.request_state, first
            ((key, request),) = first.input_requests.items()
            names_its_server(request.params.message)
            answers = {"input_responses": {key: accept(**CONTENT)}, "request_state": first.request_state}
            for wrong, state in (("print('other')", first.request_state), (code, "A" * len(first.request_state)), (code, first.request_state + "A")):
                with pytest.raises(MCPError):
                    await call(wrong, **answers | {"request_state": state})
            assert asked.told() == []
            done = await call(code, **answers)
            with pytest.raises(MCPError):
                await call(code, **answers)
            return text(done)

    output = bounded(main())
    assert output == "began\nasked", "the code ran once"
    assert asked.told() == [{"name": "form", "answer": {"action": "accept", "content": CONTENT}}]


@pytest.mark.parametrize("era", ERAS)
def test_a_question_is_its_own_clients(era, server, connect):
    """Two clients of one hub and one server ask at a time. What a handshake server asks
    over stdio names no call: it may be refused, and goes to nobody else."""
    asked = server(era)
    outputs, people = {}, {}

    async def main():
        first_asked, second_done = asyncio.Event(), asyncio.Event()

        async def first_answers(params):
            first_asked.set()
            await second_done.wait()
            return accept(name="first")

        async def run(who, answers):
            people[who] = Person(form=answers)
            async with connect("auto", people[who]) as client:
                outputs[who] = text(await client.call_tool("run_python", {"code": asking({who: form(f"Are you the {who}?")})}))

        first = asyncio.create_task(run("first", first_answers))
        waiting = asyncio.create_task(first_asked.wait())
        await asyncio.wait({first, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert first_asked.is_set(), outputs
        await run("second", accept(name="second"))
        second_done.set()
        await first

    bounded(main())
    answers = {line["name"]: line.get("answer", {}).get("content") for line in asked.told()}
    for who, person in people.items():
        assert all(f"Are you the {who}?" in params.message for params in person.asked), person.asked
        assert len(person.asked) == 1 or (era, who, len(person.asked)) == ("handshake", "second", 0)
        assert answers[who] == ({"name": who, "sure": True} if person.asked else None), asked.told()


@pytest.mark.parametrize("mode, era", CROSS)
def test_progress_and_log_messages(mode, era, server, connect, command):
    asked = server(era)
    seen = []

    async def progress(value, total, message):
        seen.append((value, message or ""))
        if "step 3 of the work" in seen[-1][1]:  # the tool waits for that
            asked.file.with_name(asked.file.name + ".seen").touch()

    async def main():
        async with connect(mode, Person()) as client:
            arguments = {"code": "print(await mcp_asking.work(steps=3))", "session": "worker"}
            result = await client.call_tool("run_python", arguments, progress_callback=progress)
            # The session lasts as long as its client, and so does its log, which is written apart.
            while "worked" not in (log := await asyncio.to_thread(command, "sessions", "logs", "worker")):
                await asyncio.sleep(0.05)
            return text(result), log

    output, log = bounded(main())
    assert output == "worked"
    values = [value for value, _ in seen]
    assert values == sorted(set(values)), "progress increases"
    for words in ("did step 1", "did step 3", "worker", '{"left":0}'):
        assert words in log, log
    assert log.count("asking") >= 4, "each message names its server"


@pytest.mark.parametrize("mode", MODES)
def test_the_everything_server(mode, npm, define, may, play, folder):
    may("elicit", "sample")
    define("everything", command=str(npm / ".bin/mcp-server-everything"), args=[])
    person = Person(form=accept(name=SECRET, integer=7), url=accept(), sample="fine", roots=[folder])
    code = """
for call in (
    mcp_everything.trigger_elicitation_request(),
    mcp_everything.trigger_url_elicitation(url="https://example.com/login"),
    mcp_everything.trigger_sampling_request(prompt="hello", maxTokens=20),
    mcp_everything.get_roots_list(),
):
    print(await call, end="\\n----\\n")
"""
    output = play(mode, person, code)
    elicited, opened, sampled, listed = output.split("----\n")[:4]
    asked = [params for params in person.asked if params != "roots"]
    assert [getattr(params, "mode", "sampling") for params in asked] == ["form", "url", "sampling"], asked
    for params in asked[:2]:
        names_its_server(params.message, "everything")
    assert f"Name: {SECRET}" in elicited and "Favorite Integer: 7" in elicited, elicited
    assert "hero-1" in elicited, "what the user leaves out has the default of the form"
    assert "accept" in opened, opened
    assert asked[2].max_tokens == 20 and "hello" in asked[2].messages[0].content.text
    assert "fine" in sampled, sampled
    assert folder.as_uri() in listed, listed


@pytest.mark.parametrize("mode, era", [("auto", "handshake"), *CROSS])
def test_the_typescript_client(mode, era, server, may, node22, npm, sallyport, environment, folder):
    asked = server(era)
    may("elicit", "sample")
    answers = {
        "elicitation/create": {"action": "accept", "content": CONTENT},
        "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "fine"}, "model": "test"},
        "roots/list": {"roots": [{"uri": folder.as_uri()}]},
    }
    more = {
        "SALLYPORT_TEST_NPM": str(npm), "SALLYPORT_TEST_ANSWERS": json.dumps(answers),
        "SALLYPORT_TEST_CODE": asking({"form": form()}, {"model": sampling(30), "roots": ROOTS}),
    }
    done = subprocess.run([node22, str(HERE / "typescript_client.mjs"), mode, "answer", sallyport, "serve"],
                          env=environment | more, cwd=folder, capture_output=True, text=True, timeout=BOUND)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout)
    assert seen["result"]["content"][0]["text"] == "asked", seen
    assert sorted({q["method"] for q in seen["asked"]}) == sorted(answers)
    (elicitation,) = [q["params"] for q in seen["asked"] if q["method"] == "elicitation/create"]
    names_its_server(elicitation["message"])
    told = {line["name"]: line["answer"] for line in asked.told()}
    assert told["form"] == answers["elicitation/create"]
    assert told["model"]["content"]["text"] == "fine"
    assert told["roots"]["roots"][0]["uri"] == folder.as_uri()


@pytest.fixture
def inspector(node22, npm, sallyport, folder, environment, tmp_path):
    """Starts a command of the Inspector's, with a file that names the server sallyport."""
    config = tmp_path / "inspector.json"
    config.write_text(json.dumps({"mcpServers": {"sallyport": {"type": "stdio", "command": sallyport, "args": ["serve"], "cwd": str(folder), "env": environment}}}))

    def start(name, *args):
        command = [node22, str(npm / ".bin" / name), *args, "--config", str(config)]
        return subprocess.Popen(command, env=environment | {"MCP_INSPECTOR_SECRET_STORE": "memory"}, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


@pytest.mark.parametrize("era, protocol", [("handshake", "legacy"), ("stateless", "modern")])
def test_the_inspectors_one_shot_command(era, protocol, server, inspector, command):
    """It declares no elicitation: the question waits for a second terminal."""
    asked = server(era)
    call = ["--method", "tools/call", "--tool-name", "run_python", "--tool-args-json", json.dumps({"code": asking({"form": form()})})]
    with inspector("mcp-inspector", "--cli", "--server", "sallyport", "--protocol-era", protocol, *call) as process:
        try:
            question = open_question(command, lambda: process.poll() is not None)
            command("approvals", "approve", question["address"], "--answer", f"name={SECRET}")
            out, err = process.communicate(timeout=BOUND)
        finally:
            process.kill()
    assert process.returncode == 0, err
    answer, _ = json.JSONDecoder().raw_decode(out[out.index("{"):])
    assert answer["content"][0]["text"] == "asked", answer
    assert asked.told() == [{"name": "form", "answer": {"action": "accept", "content": {"name": SECRET, "sure": True}}}]


@pytest.mark.parametrize("protocol, era", [("legacy", "stateless"), ("modern", "handshake")])
def test_the_inspectors_command_that_stays_connected(protocol, era, server, inspector):
    """mcpdo declares elicitation: it says what is asked, and another command answers."""
    asked = server(era)

    def mcpdo(*args):
        process = inspector("mcpdo", "--format", "json", *args)
        out, err = process.communicate(timeout=BOUND)
        assert process.returncode == 0, err
        return json.loads(out)

    try:
        mcpdo("connect", "sallyport", "--era", protocol)
        on = ["--connection", "sallyport"]
        code = asking({"form": form()}, {"login": link("https://example.com/login")})
        first = mcpdo(*on, "tools/call", "run_python", f"code:={json.dumps(code)}")["elicitationPending"]
        assert "Who are you?" in names_its_server(first["message"]) and set(first["requestedSchema"]["properties"]) == set(FIELDS)
        second = mcpdo(*on, "elicitation/respond", first["elicitationId"], json.dumps(CONTENT))["elicitationPending"]
        assert second["mode"] == "url" and second["url"] == "https://example.com/login", second
        last = mcpdo(*on, "elicitation/respond", second["elicitationId"], "--done")
        assert "asked" in json.dumps(last), last
    finally:
        mcpdo("daemon", "stop")
    assert asked.told() == [{"name": "form", "answer": {"action": "accept", "content": CONTENT}}, {"name": "login", "answer": {"action": "accept"}}]
