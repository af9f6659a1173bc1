#!/usr/bin/env python3
"""Holds placements against the exact optimum that HiGHS finds for the same hall and the same request.

Usage: placement-solver.py INSTANCES.jsonl
Each line is a hall with what is taken in it, a request and the answer to it. The model below is made from the description
alone: budgets from the supplies of every node, links from what is free. Prints one line of JSON; fails if a request was
refused that fits, if an answer is better than the optimum (then one of the two is wrong), or if the answers have over 1 %
more units than the optimum in total.
"""

import json
import multiprocessing
import os
import sys
import time
from collections import defaultdict

import highspy

INF = highspy.kHighsInf


class Model:
    """A mixed-integer program, row by row."""

    def __init__(self):
        self.solver = highspy.Highs()
        self.solver.setOptionValue("output_flag", False)
        self.solver.setOptionValue("threads", 1)
        self.count = 0

    def var(self, most, cost=0.0):
        self.solver.addVar(0, most)
        self.solver.changeColIntegrality(self.count, highspy.HighsVarType.kInteger)
        if cost:
            self.solver.changeColCost(self.count, cost)
        self.count += 1
        return self.count - 1

    def row(self, terms, least=-INF, most=INF):
        """least <= sum of factor x variable <= most."""
        sums = defaultdict(float)
        for factor, var in terms:
            sums[var] += factor
        self.solver.addRow(least, most, len(sums), list(sums), list(sums.values()))

    def optimum(self):
        self.solver.run()
        status = self.solver.getModelStatus()
        if status == highspy.HighsModelStatus.kOptimal:
            return round(self.solver.getInfo().objective_function_value)
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        raise RuntimeError(f"HiGHS says {status}")


class Hall:
    def __init__(self, given):
        self.__dict__.update(given)
        self.above = [self.line(i) for i in range(len(self.domains))]
        self.feeds = [i for i, d in enumerate(self.domains) if d["feed"]]
        self.draws = {}

    def line(self, at):
        out = set()
        while at is not None:
            out.add(at)
            at = self.domains[at]["parent"]
        return out

    def draw(self, node, domain, lost):
        """Watts that a node draws from a domain; one that goes down is counted as if nothing had happened."""
        n = self.nodes[node]
        key = (n["sku"], tuple(n["psus"]), domain, lost)
        if key not in self.draws:
            sku = self.skus[n["sku"]]
            share = lambda psus: -(-sku["watts"] * sum(domain in self.above[p] for p in psus) // len(psus))
            alive = [p for p in n["psus"] if lost is None or lost not in self.above[p]]
            normal = share(n["psus"])
            down = not alive or len(alive) < sku["psus_needed"]
            self.draws[key] = normal if down else max(normal, share(alive))
        return self.draws[key]

    def survives(self, node):
        n = self.nodes[node]
        need = self.skus[n["sku"]]["psus_needed"]
        for feed in self.feeds:
            dead = sum(feed in self.above[p] for p in n["psus"])
            alive = len(n["psus"]) - dead
            if dead and (not alive or alive < need):
                return False
        return True

    def circuits(self, node):
        above = set().union(*(self.above[p] for p in self.nodes[node]["psus"]))
        return {d for d in above if self.domains[d]["circuit"]}

    def heat(self, node, unit):
        return sum(watts for to, watts in self.nodes[node]["cooling"] if to == unit)


def admitted(hall, request):
    """Free nodes that the request may have."""
    alone_circuits, alone_cooling = defaultdict(set), defaultdict(set)
    on_circuit, on_cooling = defaultdict(set), defaultdict(set)
    for cluster in hall.clusters:
        for node in cluster["nodes"]:
            for circuit in hall.circuits(node):
                on_circuit[circuit].add(cluster["customer"])
                if cluster["own_circuits"]:
                    alone_circuits[circuit].add(cluster["customer"])
            for unit, _ in hall.nodes[node]["cooling"]:
                on_cooling[unit].add(cluster["customer"])
                if cluster["own_cooling"]:
                    alone_cooling[unit].add(cluster["customer"])
    me = {request["customer"]}
    down, up = request["ratio"]
    needs_all_rails = request["size"] > 1 and down <= up
    for node in hall.free:
        n = hall.nodes[node]
        if needs_all_rails and n["impaired"]:
            continue
        if n["sku"] != request["sku"] or set(n["labels"]) & set(request["avoid"]):
            continue
        if request["survives"] and not hall.survives(node):
            continue
        circuits, cooling = hall.circuits(node), {unit for unit, _ in n["cooling"]}
        if any(alone_circuits[c] - me or (request["own_circuits"] and on_circuit[c] - me) for c in circuits):
            continue
        if any(alone_cooling[c] - me or (request["own_cooling"] and on_cooling[c] - me) for c in cooling):
            continue
        yield node


def beyond_contract(hall, request):
    theirs = [n for c in hall.clusters if c["customer"] == request["customer"] for n in c["nodes"]]
    drawn = sum(hall.skus[hall.nodes[n]["sku"]]["watts"] for n in theirs)
    wanted = request["size"] * hall.skus[request["sku"]]["watts"]
    return any(drawn + wanted > watts for customer, watts in hall.contracts if customer == request["customer"])


def budgets(hall, request, model, groups):
    """Power with all feeds and without each, heat, and nodes under one label."""
    taken = [(node, cluster["survives"]) for cluster in hall.clusters for node in cluster["nodes"]]
    first = {var: nodes[0] for var, nodes in groups.items()}
    for d, domain in enumerate(hall.domains):
        promised = request["survives"] or any(s and hall.draw(n, d, None) for n, s in taken)
        for lost in [None] + (hall.feeds if promised else []):
            used = domain["other_w"] + sum(hall.draw(n, d, lost) for n, _ in taken)
            terms = [(hall.draw(node, d, lost), var) for var, node in first.items()]
            model.row([t for t in terms if t[0]], most=max(0, domain["capacity_w"] - used))
    for c, unit in enumerate(hall.cooling):
        used = unit["other_w"] + sum(hall.heat(n, c) for n, _ in taken)
        model.row([(hall.heat(node, c), var) for var, node in first.items()], most=unit["capacity_w"] - used)
    for kind, most in request["spread"]:
        for label in [i for i, k in enumerate(hall.label_kinds) if k == kind]:
            model.row([(1, var) for var, node in first.items() if label in hall.nodes[node]["labels"]], most=most)


def links(hall, request, model, hosts, used):
    """All units alike but one, and above every spine all pods alike but one."""
    size, (down, up) = request["size"], request["ratio"]
    parallel, spines, cores = hall.tree["links_per_spine"], hall.tree["spines"], hall.tree["cores_per_spine"]
    units = sorted(hosts)
    big = 1000 * size * max(up, down)
    common = [model.var(parallel) for _ in range(spines)]
    odd = {u: model.var(1) for u in units}
    model.row([(1, v) for v in odd.values()], most=1)
    held = {u: [model.var(free) for free in hall.uplinks[u]] for u in units}
    for u in units:
        here = [(1, v) for v in hosts[u]]
        major = model.var(1)
        enough = [(-down, v) for v in held[u]]
        model.row([(up * f, v) for f, v in here] + enough + [(-big, major)], most=0)
        model.row([(-up * f, v) for f, v in here] + enough + [(big, major)], most=big - up * size)
        for s in range(spines):
            model.row([(1, held[u][s]), (-parallel, used[u])], most=0)
            model.row([(1, held[u][s]), (-1, common[s])], most=0)
            model.row([(1, held[u][s]), (-1, common[s]), (parallel, odd[u]), (-parallel, used[u])], least=-parallel)
    pods = sorted({hall.pod_of[u] for u in units})
    for s in range(spines) if len(pods) > 1 else []:
        plane(hall, model, s, cores, parallel, {p: [held[u][s] for u in units if hall.pod_of[u] == p] for p in pods})


def plane(hall, model, s, cores, parallel, by_pod):
    alone = model.var(1)
    core = [model.var(1) for _ in range(cores)]
    there = {p: model.var(1) for p in by_pod}
    odd = {p: model.var(1) for p in by_pod}
    everything = [(1, v) for held in by_pod.values() for v in held]
    big = 1000
    model.row([(1, v) for v in odd.values()], most=1)
    model.row([(1, v) for v in there.values()] + [(len(by_pod), alone)], most=1 + len(by_pod))
    for p, held in by_pod.items():
        for v in held:
            model.row([(1, v), (-parallel, there[p])], most=0)
        up = [model.var(hall.core_links[p][s][c]) for c in range(cores)]
        for c in range(cores):
            model.row([(1, up[c]), (-1, core[c])], most=0)
            model.row([(1, up[c]), (-1, core[c]), (1, odd[p]), (-1, there[p])], least=-1)
        major = model.var(1)
        here, links = [(1, v) for v in held], [(-1, v) for v in up]
        model.row(here + links + [(-big, alone), (-big, major)], most=0)
        rest = everything + [(-1, v) for v in held]
        model.row(rest + links + [(-big, alone), (big, major)], most=big)


def solve(line):
    given = json.loads(line)
    hall, request = Hall(given["hall"]), given["request"]
    alike = defaultdict(list)
    for node in admitted(hall, request):
        n = hall.nodes[node]
        alike[n["unit"], tuple(n["psus"]), tuple(map(tuple, n["cooling"])), tuple(n["labels"])].append(node)
    if sum(map(len, alike.values())) < request["size"] or beyond_contract(hall, request):
        return given, None
    model = Model()
    groups, hosts = {}, defaultdict(list)
    for key, nodes in alike.items():
        var = model.var(len(nodes))
        groups[var] = nodes
        hosts[key[0]].append(var)
    used = {u: model.var(1, 1.0) for u in hosts}
    for u, here in hosts.items():
        model.row([(1, v) for v in here] + [(-request["size"], used[u])], most=0)
    model.row([(1, v) for v in groups], request["size"], request["size"])
    budgets(hall, request, model, groups)
    links(hall, request, model, hosts, used)
    return given, model.optimum()


def main(path):
    start = time.monotonic()
    with open(path, encoding="utf-8") as file:
        lines = file.readlines()
    told = defaultdict(int)
    with multiprocessing.Pool(os.cpu_count()) as pool:
        for given, optimum in pool.imap_unordered(solve, lines, chunksize=16):
            answer = given["answer"]
            told["instances"] += 1
            told["unproven"] += answer is None and not given["proven"]
            if answer is None or optimum is None:
                told["refused"] += answer is None and optimum is None
                told["refused_but_fits"] += answer is None and optimum is not None
                told["placed_against_the_model"] += answer is not None and optimum is None
            else:
                told["placed"] += 1
                told["units"] += answer
                told["optimum"] += optimum
                told["more_than_optimum"] += answer > optimum
                told["placed_against_the_model"] += answer < optimum
                told["several_units"] += optimum > 1
            wrong = (answer is None) != (optimum is None) or answer is not None and answer < optimum
            if wrong and told["shown"] < 5:
                told["shown"] += 1
                print(f"seed {given['seed']}: the answer is {answer}, the optimum {optimum}", file=sys.stderr)
    told["seconds"] = round(time.monotonic() - start, 1)
    print(json.dumps(told))
    bad = told["refused_but_fits"] or told["placed_against_the_model"] or told["unproven"]
    return 1 if bad or told["units"] > told["optimum"] * 1.01 else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
