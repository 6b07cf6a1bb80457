"""`serve`: answers equal `predict`, sessions remember, limits hold, and nothing strange is imported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from fastapi.testclient import TestClient

from conformance import small_config
from rl_training.runtime.manager import train_run
from rl_training.runtime.opening import load_policy
from rl_training.runtime.workflows import predict
from rl_training.tools.serve import make_app, service_for
from rl_training.tools.serving import Limits
from rl_training.tools.wire import MSGPACK, arrays_from

OBS = [0.1, -0.2, 0.03, 0.4]


@pytest.fixture(scope="module")
def feedforward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("ppo", tmp_path_factory.mktemp("ppo"))


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("recurrent_ppo", tmp_path_factory.mktemp("recurrent_ppo"))


def trained(algo: str, folder: Path) -> Path:
    run_dir = train_run(small_config(algo, folder, eval_episodes=0)).run_dir
    assert run_dir is not None
    return run_dir


def client_of(run: Path, **limits: Any) -> TestClient:
    app = make_app(service_for(run, limits=Limits(**limits)))
    return TestClient(app, base_url="http://127.0.0.1")


@pytest.fixture
def client(feedforward: Path) -> Iterator[TestClient]:
    with client_of(feedforward) as client:
        yield client


def test_an_answer_is_what_predict_says(client: TestClient, feedforward: Path) -> None:
    policy = load_policy(feedforward)
    batch = np.random.default_rng(0).normal(size=(5, 4))
    expected, _ = predict(policy, batch)
    assert client.post("/act", json={"obs": batch.tolist()}).json() == {"action": expected.tolist()}
    assert client.post("/act", json={"obs": batch[0].tolist()}).json() == {"action": int(expected[0])}


def test_messagepack_takes_lists_and_bytes(client: TestClient) -> None:
    array = np.array([OBS], dtype=np.float32)
    packed = {"dtype": "<f4", "shape": [1, 4], "data": array.tobytes()}
    answers = [
        client.post("/act", content=msgpack.packb({"obs": obs}), headers={"content-type": MSGPACK, "accept": MSGPACK})
        for obs in ([OBS], packed)
    ]
    assert msgpack.unpackb(answers[0].content) == msgpack.unpackb(answers[1].content)
    assert len(msgpack.unpackb(answers[0].content)["action"]) == 1


def test_a_session_remembers_and_forgets_at_a_reset(recurrent: Path) -> None:
    policy = load_policy(recurrent)
    rows = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    service = service_for(recurrent, limits=Limits())
    with TestClient(make_app(service), base_url="http://127.0.0.1") as client:
        session = client.post("/sessions", json={}).json()["session"]
        state, memory = None, service.sessions[session]
        for row in rows:
            expected, state = predict(policy, row, state=state)
            assert client.post("/act", json={"obs": row.tolist(), "session": session}).json() == {
                "action": int(expected)
            }
            np.testing.assert_allclose(memory.state, state, atol=1e-6)
        client.post("/act", json={"obs": rows[0].tolist(), "session": session, "reset": True})
        np.testing.assert_allclose(memory.state, predict(policy, rows[0])[1], atol=1e-6)
        assert client.delete(f"/sessions/{session}").status_code == 200
        gone = client.post("/act", json={"obs": rows[0].tolist(), "session": session})
        assert (gone.status_code, "begin one with POST /sessions" in gone.json()["error"]) == (404, True)


def test_many_clients_share_batches_and_keep_their_own_memories(recurrent: Path) -> None:
    policy = load_policy(recurrent)
    service = service_for(recurrent, limits=Limits())
    wrong: list[str] = []

    def play(client: TestClient, seed: int) -> None:
        session = client.post("/sessions", json={}).json()["session"]
        state = None
        for row in np.random.default_rng(seed).normal(size=(8, 2)).astype(np.float32):
            _, state = predict(policy, row, state=state)
            client.post("/act", json={"obs": row.tolist(), "session": session})
        if not np.allclose(service.sessions[session].state, state, atol=1e-5):
            wrong.append(session)

    with TestClient(make_app(service), base_url="http://127.0.0.1") as client:
        threads = [threading.Thread(target=play, args=(client, seed)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    assert service.counts["rows"] == 64
    assert service.counts["batches"] < 64  # some were answered together


@pytest.mark.parametrize(
    ("request_", "status", "complaint"),
    [
        ({"json": {"obs": [1, 2]}}, 400, "shape"),
        ({"json": {}}, 400, "no 'obs'"),
        ({"json": {"obs": {"a": [1]}}}, 400, ""),
        ({"json": {"obs": None}}, 400, ""),
        ({"json": {"obs": OBS, "action_mask": [1, 1]}}, 400, "without action masks"),
        ({"json": {"obs": ["a"]}}, 400, "something else"),
        ({"json": {"obs": [[1, 2], [3]]}}, 400, "obs"),
        ({"json": {"obs": OBS, "deterministic": "yes"}}, 400, "deterministic: expected true or false"),
        ({"json": {"obs": OBS, "sesion": "x"}}, 400, "unknown key 'sesion'"),
        ({"json": {"obs": OBS, "session": ["x"]}}, 404, "no session"),
        ({"json": {"obs": [OBS] * 257}}, 400, "1 to 256 observations"),
        ({"json": {"obs": []}}, 400, ""),
        ({"json": [1]}, 400, "must be a mapping"),
        ({"content": b"{", "headers": {"content-type": "application/json"}}, 400, "is not application/json"),
        ({"content": b"[" * 100_000, "headers": {"content-type": "application/json"}}, 400, "is not application/json"),
        ({"content": b"\x81", "headers": {"content-type": MSGPACK}}, 400, "is not application/msgpack"),
        ({"content": b'{"obs": NaN}', "headers": {"content-type": "application/json"}}, 400, ""),
        ({"content": b"obs=1", "headers": {"content-type": "text/plain"}}, 415, "content type"),
        ({"content": b" " * 2_001, "headers": {"content-type": "application/json"}}, 413, "more than 2,000 bytes"),
    ],
)
def test_a_bad_request_is_refused_with_its_reason(
    request_: dict[str, Any], status: int, complaint: str, feedforward: Path
) -> None:
    most = 2_000 if status == 413 else 1_000_000
    with client_of(feedforward, body_bytes=most) as client:
        answer = client.post("/act", **request_)
        assert answer.status_code == status, answer.text
        assert complaint in answer.json()["error"]
        assert client.post("/act", json={"obs": OBS}).status_code == 200  # and the next one is served


@pytest.mark.parametrize(
    "spec",
    [
        {"dtype": "O", "shape": [1], "data": b"12345678"},
        {"dtype": "<f4", "shape": [2], "data": b"1234"},
        {"dtype": "<f4", "shape": [-1], "data": b"1234"},
        {"dtype": "f4,f4", "shape": [1], "data": b"12345678"},
        {"dtype": "no such", "shape": [1], "data": b"1"},
        {"dtype": "<f4", "shape": "1", "data": b"1234"},
    ],
)
def test_bytes_that_are_no_array_of_numbers_are_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"dtype|shape|array"):
        arrays_from(spec)


def test_sessions_are_limited_and_idle_ones_make_room(recurrent: Path) -> None:
    with client_of(recurrent, sessions=2) as client:
        made = [client.post("/sessions", json={}) for _ in range(3)]
        assert [answer.status_code for answer in made] == [200, 200, 429]
        assert "--max-sessions" in made[2].json()["error"]
    with client_of(recurrent, sessions=1, session_idle_s=-1.0) as client:
        assert [client.post("/sessions", json={}).status_code for _ in range(3)] == [200, 200, 200]


def test_a_session_takes_one_observation(recurrent: Path) -> None:
    with client_of(recurrent) as client:
        session = client.post("/sessions", json={}).json()["session"]
        answer = client.post("/act", json={"obs": [OBS[:2]] * 2, "session": session})
        assert (answer.status_code, "one observation at a time" in answer.json()["error"]) == (400, True)


def test_a_network_that_fails_is_answered_with_500_and_the_next_is_served(
    feedforward: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = service_for(feedforward, limits=Limits())
    with TestClient(make_app(service), base_url="http://127.0.0.1") as client:
        with monkeypatch.context() as patched:
            patched.setattr(service, "_compute", lambda batch: 1 / 0)
            assert client.post("/act", json={"obs": OBS}).status_code == 500
        assert client.post("/act", json={"obs": OBS}).status_code == 200


def test_health_metrics_and_spaces(client: TestClient) -> None:
    client.post("/act", json={"obs": [OBS, OBS]})
    client.post("/act", json={"obs": 1})
    assert client.get("/health").json() == {"status": "ok"}
    text = client.get("/metrics").text
    assert {"rl_training_requests_total 2", "rl_training_errors_total 1", "rl_training_rows_total 2"} <= {
        *text.split("\n")
    }
    assert 'rl_training_request_seconds{quantile="0.99"}' in text
    assert client.get("/spaces").json()["action"] == "Discrete(2)"


def test_a_name_that_only_resolves_here_is_not_answered(feedforward: Path) -> None:
    with TestClient(make_app(service_for(feedforward, limits=Limits())), base_url="http://evil.example") as client:
        assert client.get("/health").status_code == 400


def test_the_verb_serves_until_a_signal(feedforward: Path) -> None:
    command = [sys.executable, "-m", "rl_training", "serve", str(feedforward), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        assert process.stderr is not None
        url = next(line for line in process.stderr if "serving" in line).split(" at ")[1].partition(";")[0]
        body = json.dumps({"obs": OBS}).encode()
        request = urllib.request.Request(f"{url}/act", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.load(answer)["action"] in (0, 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
