"""A server that speaks OpenAI's protocol is probed as a model in this process is."""

import json
import math
from http.server import BaseHTTPRequestHandler

import numpy as np
import pytest
from local_server import LocalServer

from dataaudit import ConfigError
from dataaudit.probes.endpoint import KEY, EndpointModel
from dataaudit.probes.models import Decoding, Tokenizer

BYTES = Tokenizer.of_bytes(256)


class Server:
    """Answers as vLLM does; each character is a token, whose probability is 1 / (its place + 1)."""

    def __init__(self, *, echo=True, fails=(), models=("tiny",), longest=99):
        self.asked, fails = [], list(fails)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.answer([] if models is None else {"data": [{"id": name} for name in models]})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append((body, self.headers.get("Authorization")))
                if fails:
                    self.send_error(fails.pop(0))
                    return
                prompt = body["prompt"]
                if body.get("echo") and (not echo or len(prompt) > longest):
                    self.send_error(400)
                    return
                if body.get("echo"):
                    text = prompt + "x"
                    values = [None, *(-math.log(at + 1) for at in range(1, len(text)))]
                    stated = {"tokens": list(text), "token_logprobs": values, "text_offset": list(range(len(text)))}
                    self.answer({"choices": [{"text": text, "logprobs": stated}]})
                    return
                self.answer({"choices": [{"text": f"{prompt[::-1]}{body['seed']}"[: body["max_tokens"]]}]})

            def answer(self, value):
                data = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.http = LocalServer(Handler)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.close()

    def model(self, name=""):
        return EndpointModel(f"{self.http.address}/v1/{name}", BYTES, context=64, pause=0.01)


def test_texts_are_gone_on_with():
    with Server() as server:
        model = server.model()
        prompts = [np.array([256, *b"abc"]), BYTES.encode("xy")]
        made = model.continued(prompts, [5, 6], Decoding(tokens=4, temperature=0.7, top_p=0.9, seed=1))
        assert [bytes(row.tolist()) for row in made] == [b"cba1", b"yx10"]
        bodies = sorted((body for body, _ in server.asked), key=lambda body: body["prompt"])
        assert [body["seed"] for body in bodies] == [1_000_008, 1_000_009]
        assert bodies[0] | {"seed": 0} == {
            "model": "tiny",
            "prompt": "abc",
            "max_tokens": 4,
            "temperature": 0.7,
            "top_p": 0.9,
            "seed": 0,
        }


def test_losses_are_those_of_the_second_text():
    with Server() as server:
        found = server.model("#other").scored(
            [(BYTES.encode("abc"), BYTES.encode("de")), (BYTES.encode(""), BYTES.encode("xy"))]
        )
        assert found[0].tolist() == pytest.approx([math.log(4), math.log(5)])
        assert found[1].tolist() == pytest.approx([math.log(2)])
        assert server.asked[0][0]["model"] == "other"


def test_a_server_that_does_not_echo_has_no_losses():
    with Server(echo=False) as server:
        assert server.model().scored([(BYTES.encode("a"), BYTES.encode("b"))]) is None


def test_a_text_that_is_too_long_for_the_server_is_no_lack_of_losses():
    with Server(longest=6) as server, pytest.raises(ConfigError, match=r"none of 8 tokens\n  .*--context N"):
        server.model().scored([(BYTES.encode("ab"), BYTES.encode("cd")), (BYTES.encode("abcd"), BYTES.encode("efgh"))])


def test_busy_servers_are_asked_again_and_keys_are_sent_in_the_header(monkeypatch):
    monkeypatch.setenv(KEY, "secret-key")
    with Server(fails=[503, 429]) as server:
        made = server.model().continued([BYTES.encode("ab")], [0], Decoding(tokens=2))
        assert bytes(made[0].tolist()) == b"ba"
        assert [header for _, header in server.asked] == ["Bearer secret-key"] * 3


@pytest.mark.parametrize(("code", "words"), [(401, KEY), (503, "does not answer"), (500, "4 times")])
def test_a_server_that_refuses_is_named(code, words):
    with Server(fails=[code] * 4) as server, pytest.raises(ConfigError, match=words):
        server.model().continued([BYTES.encode("ab")], [0], Decoding(tokens=2))


def test_a_server_without_models_or_without_an_answer_is_named():
    with Server(models=()) as server, pytest.raises(ConfigError, match="lists no model"):
        server.model()
    with Server(models=None) as server, pytest.raises(ConfigError, match=r"does not answer \(no JSON object\)"):
        server.model()
    with pytest.raises(ConfigError, match=r"does not answer \(ConnectionRefusedError\)"):
        EndpointModel(server.http.address, BYTES, context=64, pause=0.01)
