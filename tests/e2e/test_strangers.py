"""Another user of the machine gets nothing of a local cluster: no scheduler, worker, nanny or page answers to them."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.children
STRANGER = 65534
CLUSTER = """
import json, os, pathlib, sys, tempfile

def ports(pid):
    own = set()
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            own.add(os.readlink(link))
        except OSError:
            pass
    lines = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(line[1].split(":")[1], 16) for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in own]

def main():
    from dataaudit.engine.cluster import ClusterChoice, open_cluster
    with tempfile.TemporaryDirectory() as folder:
        with open_cluster(ClusterChoice(workers=2), pathlib.Path(folder)) as cluster:
            pids = [os.getpid(), *cluster.client.run(os.getpid).values()]
            assert cluster.client.submit(pow, 2, 5).result() == 32
            files = [line for pid in pids for line in pathlib.Path(f"/proc/{pid}/environ").read_text().split(chr(0))]
            told = {
                "ports": sorted(port for pid in pids for port in ports(pid)),
                "scheme": cluster.client.scheduler.address.partition(":")[0],
                "keys": [line for line in files if "PRIVATE KEY" in line],
            }
            print(json.dumps(told), flush=True)
            sys.stdin.readline()

if __name__ == "__main__":
    main()
"""
"""Starts a cluster of two workers, says where its processes listen, and waits."""
ATTACK = """
import asyncio, json, os, sys, urllib.request
from distributed.core import connect
from distributed.security import Security

user, ports = int(sys.argv[1]), json.loads(sys.argv[2])
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
own = Security.temporary().get_connection_args("client")
PAGES = ("", "status", "health", "metrics", "json/counts.json", "info/main/workers.html", "sitemap.json")

async def ask(address, how):
    comm = await connect(address, timeout=5, **how)
    await comm.write({"op": "identity", "reply": True})
    answer = await comm.read()
    comm.abort()
    return answer["type"]

def page(address):
    with urllib.request.urlopen(address, timeout=5) as response:
        return response.status

async def attempt(name, port, asked):
    try:
        return name, port, str(await asyncio.wait_for(asked, 10))
    except BaseException:
        return name, port, None

async def main():
    asked = []
    for port in ports:
        place = f"127.0.0.1:{port}"
        asked.append(attempt("tcp", port, ask(f"tcp://{place}", {})))
        asked.append(attempt("tls", port, ask(f"tls://{place}", own)))
        asked += [attempt(f"/{path}", port, asyncio.to_thread(page, f"http://{place}/{path}")) for path in PAGES]
    return await asyncio.gather(*asked)

print(json.dumps({"user": os.geteuid(), "answers": asyncio.run(main())}))
"""
"""Asks every port as another user: without and with a certificate of their own, and for pages."""


def _processes(tmp_path, environment=None):
    """Start a cluster; return its process and what it says."""
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER)
    process = subprocess.Popen(
        [sys.executable, script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    return process, json.loads(process.stdout.readline())


def _attack(ports):
    """Return as whom the ports were asked, and what answered."""
    user = STRANGER if os.geteuid() == 0 else os.geteuid()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        command = [sys.executable, "-c", ATTACK, str(user), json.dumps(ports)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["user"] == user
    return told["answers"]


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {
            "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "False",
            "DASK_DISTRIBUTED__COMM__DEFAULT_SCHEME": "tcp",
            "DASK_DISTRIBUTED__COMM__TLS__CIPHERS": "ALL:eNULL:aNULL:@SECLEVEL=0",
            "DASK_DISTRIBUTED__SCHEDULER__DASHBOARD__TLS__CERT": "",
            "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": '["distributed.http.scheduler.api"]',
            "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES": '["distributed.http.health"]',
        },
    ],
    ids=["plain", "loosened"],
)
def test_no_port_of_a_local_cluster_answers_to_a_stranger(tmp_path, environment):
    """As another user where the tests run as root, which is where CI runs; else as the same user without the key."""
    process, cluster = _processes(tmp_path, environment)
    try:
        assert len(cluster["ports"]) == 5, "a scheduler, two nannies and two workers; nothing serves pages"
        answers = _attack(cluster["ports"])
    finally:
        process.communicate("\n", timeout=60)
    assert process.returncode == 0
    assert len(answers) == 9 * len(cluster["ports"])
    assert [one for one in answers if one[2] is not None] == []
    assert cluster["scheme"] == "tls"
    assert cluster["keys"] == []


def test_the_attack_gets_into_a_cluster_without_certificates(tmp_path):
    """Else the test above would show nothing."""
    script = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
        print(int(cluster.scheduler_address.rpartition(":")[2]), flush=True)
        sys.stdin.readline()
"""
    (tmp_path / "open.py").write_text(script)
    with subprocess.Popen(
        [sys.executable, tmp_path / "open.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        answers = _attack([int(process.stdout.readline())])
        process.communicate("\n", timeout=60)
    assert [(name, answer) for name, _, answer in answers if answer is not None] == [("tcp", "Scheduler")]


def test_the_key_of_a_cluster_is_on_no_disk(tmp_path, monkeypatch):
    """OpenSSL takes keys from files alone; ours is a file of memory, closed again."""
    from distributed.security import Security

    from dataaudit.engine.preload import LocalSecurity

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(FileNotFoundError):  # so Dask's own would have used it
        Security.temporary().get_listen_args("worker")
    before = os.listdir("/proc/self/fd")
    security = LocalSecurity.temporary()
    for role in ("client", "scheduler", "worker"):
        assert security.get_listen_args(role)["ssl_context"].verify_mode.name == "CERT_REQUIRED"
        assert security.get_connection_args(role)["require_encryption"]
    assert os.listdir("/proc/self/fd") == before
