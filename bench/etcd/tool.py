#!/usr/bin/env python3
"""Compares kvnode with etcd by etcd's own benchmark tool.

  tool.py --etcd ETCD --kvnode KVNODE --patched ETCD --tool BENCHMARK --etcdctl ETCDCTL [--again] [--pinned] [--rounds 5] [--clients 1,16,64,256]

--patched is etcd with the leader lease (contrib/etcd); one of it and --kvnode is enough. --again runs
a second stock etcd, which shows what a difference is worth. --pinned has all servers on the first
processor and the tool on the second, so that a client never takes time from a server.

Starts three members of each on loopback, and asks the leader: linearizable and
serializable range of one key, and put. Runs alternate, their order rotates, and
medians are printed with the servers' CPU time for each operation, which a busy
machine disturbs least.
"""
import argparse, json, os, re, shutil, statistics, subprocess, tempfile, time

RANGE = lambda c: lambda n: ["range", "foo", f"--consistency={c}", f"--total={n}"]
OPS = {
    "linearizable": RANGE("l"),
    "serializable": RANGE("s"),
    "put": lambda n: ["put", "--key-size=8", "--val-size=256", f"--total={n}", "--sequential-keys", "--key-space-size=100000"],
}
READS = {1: 3000, 16: 12000, 64: 20000, 256: 20000}


class Cluster:
    def __init__(self, name, command, port, folder):
        self.name, self.members, self.endpoints = name, [], []
        peers = ",".join(f"n{i}=http://127.0.0.1:{port+10*i+1}" for i in range(3))
        for i in range(3):
            client, peer = f"http://127.0.0.1:{port+10*i}", f"http://127.0.0.1:{port+10*i+1}"
            args = command + ["--name", f"n{i}", "--data-dir", f"{folder}/{name}{i}", "--listen-client-urls", client,
                              "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                              "--initial-cluster", peers, "--log-level", "error"]
            log = open(f"{folder}/{name}{i}.log", "w")
            self.members.append(subprocess.Popen(args, stdout=log, stderr=log))
            self.endpoints.append(client.removeprefix("http://"))

    def cpu(self):
        """CPU seconds of all members."""
        total = 0
        for m in self.members:
            for thread in os.listdir(f"/proc/{m.pid}/task"):
                try:
                    total += int(open(f"/proc/{m.pid}/task/{thread}/schedstat").read().split()[0])
                except OSError:
                    pass
        return total / 1e9

    def find_leader(self, tool):
        for endpoint in self.endpoints:
            out = subprocess.run([tool, "endpoint", "status", "-w", "json", "--endpoints", endpoint], capture_output=True, text=True).stdout
            status = json.loads(out)[0]["Status"]
            if status["leader"] == status["header"]["member_id"]:
                self.leader = endpoint
                return
        raise SystemExit(f"{self.name} has no leader")

    def run(self, tool, op, clients, total):
        before = self.cpu()
        out = subprocess.run([tool, f"--endpoints={self.leader}", f"--conns={min(clients, 8)}", f"--clients={clients}"] + OPS[op](total),
                             capture_output=True, text=True)
        rate = re.search(r"Requests/sec:\s+([\d.]+)", out.stdout)
        if not rate or "Error distribution" in out.stdout:
            raise SystemExit(f"{self.name} {op} failed:\n{out.stdout}\n{out.stderr}")
        return float(rate.group(1)), (self.cpu() - before) / total * 1e6


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--etcd", "--tool", "--etcdctl"):
        p.add_argument(flag, required=True)
    for flag in ("--kvnode", "--patched"):
        p.add_argument(flag)
    p.add_argument("--again", action="store_true")
    p.add_argument("--pinned", action="store_true")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--clients", default="1,16,64,256")
    p.add_argument("--port", type=int, default=25000)
    a = p.parse_args()
    folder = tempfile.mkdtemp()
    servers = [("etcd", [a.etcd], 0)]
    if a.patched:
        servers.append(("patched", [a.patched, "--feature-gates", "LeaderLeaseReads=true"], 200))
    if a.kvnode:
        servers.append(("kvnode", [a.kvnode, "serve"], 100))
    if a.again:
        servers.append(("again", [a.etcd], 300))
    pin = ["taskset", "-c", "0"] if a.pinned else []
    clusters = [Cluster(name, pin + command, a.port + port, folder) for name, command, port in servers]
    if a.pinned:
        os.sched_setaffinity(0, {1})  # what this process starts from here on: the tool
    try:
        time.sleep(4)
        for c in clusters:
            c.find_leader(a.etcdctl)
            subprocess.run([a.etcdctl, "--endpoints", c.leader, "put", "foo", "x" * 240], check=True, capture_output=True)
        print("clients op            etcd/s  other/s  ratio   etcd us/op  other us/op  cpu ratio  other")
        for clients in map(int, a.clients.split(",")):
            results = {}
            for r in range(a.rounds):
                turn = r % len(clusters)
                order = clusters[turn:] + clusters[:turn]
                for op in OPS:
                    n = READS.get(clients, 20000) if op != "put" else max(READS.get(clients, 20000) // 3, 600)
                    for c in order:
                        results.setdefault((c.name, op), []).append(c.run(a.tool, op, clients, n))
            med = lambda name, op, i: statistics.median(x[i] for x in results[name, op])
            for name in [c.name for c in clusters[1:]]:
                for op in OPS:
                    e, k = med("etcd", op, 0), med(name, op, 0)
                    ec, kc = med("etcd", op, 1), med(name, op, 1)
                    print(f"{clients:7} {op:13} {e:6.0f} {k:8.0f} {k/e:6.2f} {ec:12.1f} {kc:12.1f} {kc/ec:10.2f}  {name}", flush=True)
                if name != "again":
                    print(f"{clients:7} {name} linearizable, under the lease, against etcd serializable: {med(name,'linearizable',0)/med('etcd','serializable',0):.2f}", flush=True)
    finally:
        for c in clusters:
            for m in c.members:
                m.kill()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
