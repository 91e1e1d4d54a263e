#!/usr/bin/env python3
"""Times PyTorch's best for a MiniLM-shaped encoder in f16: ids on the host in, embeddings on the host out.

With --out DIR also writes the model (minilm.safetensors) and cases with their answers for others to run, in
cases_b<batch>_s<sequence>[_ragged].safetensors. With --time it needs a GPU. See README.md beside this file.
"""

import argparse
import gc
import json
import pathlib
import random
import signal
import statistics
import sys
import time

import torch

import minilm

BATCHES = (1, 8, 32)
SEQUENCES = (16, 128)
REQUESTS_A_CASE = 4  # Different ids, so that an answer that is not computed from its request shows.
ALLOWED_ERROR = 1e-2
WARM_UP = 30
OWN_REPETITION_US = 60_000  # The time that one repetition of one peer aims at.


class OutOfTime(BaseException):
    """The budget is spent. No Exception, which a compiler would take for its own."""


class Case:
    """Requests of one batch and sequence length, and their answers."""

    def __init__(self, batch, sequence, ragged, seed):
        self.batch, self.sequence, self.ragged = batch, sequence, ragged
        rng = random.Random(f"{seed} {batch} {sequence} {ragged}")
        self.ids, self.masks = [], []
        for _ in range(REQUESTS_A_CASE):
            lengths = [sequence] * batch
            if ragged:
                lengths = [rng.randint(1, sequence) for _ in range(batch)]
                lengths[0] = sequence if batch > 1 else rng.randint(sequence // 2, sequence - 1)
            vocabulary = minilm.SHAPE["vocab_size"]
            rows = [[rng.randrange(1, vocabulary) for _ in range(n)] + [0] * (sequence - n) for n in lengths]
            self.ids.append(torch.tensor(rows, dtype=torch.int32))
            self.masks.append(torch.tensor([[1] * n + [0] * (sequence - n) for n in lengths], dtype=torch.int32))
        self.hidden, self.embeddings = [], []

    @property
    def name(self):
        return f"b{self.batch}_s{self.sequence}" + ("_ragged" if self.ragged else "")

    def key(self):
        lengths = "ragged" if self.ragged else "full"
        return {"batch": self.batch, "sequence": self.sequence, "lengths": lengths}

    def requests(self):
        """What a peer is given: i32 [1, batch, sequence], or [2, ...] with the mask where lengths differ."""
        pairs = zip(self.ids, self.masks)
        return [torch.stack([ids, mask] if self.ragged else [ids]).contiguous() for ids, mask in pairs]

    def answer(self, weights, device):
        """Computes the answers in the weights' type."""
        for ids, mask in zip(self.ids, self.masks):
            hidden, embeddings = minilm.reference(weights, ids.to(device), mask.to(device))
            self.hidden.append(hidden.float().cpu())
            self.embeddings.append(embeddings.float().cpu())

    def write(self, folder):
        tensors = {
            "input_ids": self.ids[0],
            "attention_mask": self.masks[0],
            "last_hidden_state": self.hidden[0],
            "embeddings": self.embeddings[0],
        }
        minilm.write_safetensors(folder / f"cases_{self.name}.safetensors", tensors)


def host_view(tensor):
    """The cheapest way to write a host tensor: NumPy's where there is NumPy."""
    try:
        return tensor.numpy()
    except RuntimeError:
        return tensor


class Exchange:
    """Pinned and device buffers of one case that every peer copies through."""

    def __init__(self, case):
        request = case.requests()[0]
        with torch.inference_mode(False):  # The compiler asks its inputs for what tensors of inference mode lack.
            self.pinned = torch.zeros(request.shape, dtype=request.dtype).pin_memory()
            self.device = torch.zeros(request.shape, dtype=request.dtype, device="cuda")
            self.result = torch.zeros(case.batch, minilm.SHAPE["hidden_size"]).pin_memory()
        self.pinned_view = host_view(self.pinned)
        self.stream = torch.cuda.current_stream()

    def to_device(self):
        self.device.copy_(self.pinned, non_blocking=True)

    def to_host(self, embeddings):
        self.result.copy_(embeddings, non_blocking=True)


def capture(work):
    """A CUDA graph of what `work` does."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


class Graph:
    """A graph captured by hand, both copies in it."""

    answers = True

    def __init__(self, model, case):
        self.exchange = Exchange(case)
        self.model = self.prepare(model)
        self.graph = capture(self.whole)
        self.replay = self.graph.replay

    def prepare(self, model):
        return model

    def whole(self):
        self.exchange.to_device()
        self.exchange.to_host(self.model(self.exchange.device))

    def __call__(self, request):
        exchange = self.exchange
        exchange.pinned_view[...] = request
        self.replay()
        exchange.stream.synchronize()
        return exchange.result


class GraphBetweenCopies:
    """A graph captured by hand, both copies outside it."""

    answers = True

    def __init__(self, model, case):
        self.exchange = Exchange(case)
        self.model = model
        self.embeddings = torch.zeros_like(self.exchange.result, device="cuda")
        self.graph = capture(lambda: self.embeddings.copy_(self.model(self.exchange.device)))
        self.replay = self.graph.replay

    def __call__(self, request):
        exchange = self.exchange
        exchange.pinned_view[...] = request
        exchange.to_device()
        self.replay()
        exchange.to_host(self.embeddings)
        exchange.stream.synchronize()
        return exchange.result


class CompiledGraph(Graph):
    """The compiler's kernels in a graph captured by hand, both copies in it."""

    def prepare(self, model):
        return torch.compile(model, dynamic=False, fullgraph=True)


class Compiled:
    """torch.compile with its own CUDA graphs."""

    answers = True
    mode = "reduce-overhead"

    def __init__(self, model, case):
        self.exchange = Exchange(case)
        # Spares the copy into an input of the graph.
        torch._dynamo.mark_static_address(self.exchange.device)
        self.model = torch.compile(model, mode=self.mode, dynamic=False, fullgraph=True)

    def __call__(self, request):
        exchange = self.exchange
        exchange.pinned_view[...] = request
        exchange.to_device()
        exchange.to_host(self.model(exchange.device))
        exchange.stream.synchronize()
        return exchange.result


class Autotuned(Compiled):
    mode = "max-autotune"


class CopiesAlone(Graph):
    """No peer: a graph of both copies and nothing between them, the floor of a graph from Python."""

    answers = False

    def prepare(self, model):
        embeddings = torch.zeros_like(self.exchange.result, device="cuda")
        return lambda request: embeddings


PEERS = {
    "cuda_graph": Graph,
    "cuda_graph_between_copies": GraphBetweenCopies,
    "compile_reduce_overhead": Compiled,
    "compile_in_cuda_graph": CompiledGraph,
    "compile_max_autotune": Autotuned,
    "copies_alone": CopiesAlone,
}
USUAL = ("cuda_graph", "cuda_graph_between_copies", "compile_reduce_overhead", "copies_alone")


def relative_error(answer, expected):
    """The worst row's error, relative to the row. A NaN is an error without end."""
    error = ((answer.double() - expected.double()).norm(dim=-1) / expected.double().norm(dim=-1)).max().item()
    return error if error == error else float("inf")


class Budget:
    """Ends the program's measurements in time, also one that compiles."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

        def spent(_signal, _frame):
            raise OutOfTime

        signal.signal(signal.SIGALRM, spent)
        # Again each second, for an exception from a finaliser is lost.
        signal.setitimer(signal.ITIMER_REAL, seconds, 1)

    def left(self):
        return self.end - time.monotonic()

    @staticmethod
    def close():
        signal.setitimer(signal.ITIMER_REAL, 0)


class Report:
    """JSON lines, each written as soon as it is known."""

    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8") if path else None

    def add(self, **values):
        line = json.dumps(values)
        print(line, flush=True)
        if self.file:
            print(line, file=self.file, flush=True)


def first_line(error):
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def start(name, model, case, report):
    """A peer that gives the right answers, what it took to make it, and its error; None where it fails."""
    began = time.monotonic()
    try:
        peer = PEERS[name](model, case)
        requests = [host_view(request) for request in case.requests()]
        for request in requests:  # The first calls compile, warm up and record.
            peer(request)
        if not peer.answers:
            return peer, time.monotonic() - began, None
        errors = [relative_error(peer(request), expected) for request, expected in zip(requests, case.embeddings)]
    except Exception as error:
        report.add(peer=name, **case.key(), failed=first_line(error))
        return None
    if max(errors) > ALLOWED_ERROR:
        report.add(peer=name, **case.key(), failed="answers are wrong", relative_error=max(errors))
        return None
    return peer, time.monotonic() - began, max(errors)


def repetition(peer, requests, count):
    """Microseconds of each of `count` requests, one after the other."""
    clock = time.perf_counter_ns
    taken = []
    for number in range(count):
        request = requests[number % len(requests)]
        begin = clock()
        peer(request)
        taken.append((clock() - begin) / 1000)
    return taken


def device_us(peer, count=100):
    """Device time of one replay among replays without a gap; None for a peer that does not replay by hand."""
    if not hasattr(peer, "replay"):
        return None
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(10):
        peer.replay()
    begin.record()
    for _ in range(count):
        peer.replay()
    end.record()
    end.synchronize()
    return round(begin.elapsed_time(end) * 1000 / count, 2)


def measure(peers, case, options, report):
    """Interleaves the peers' repetitions, and reports the median repetition of each."""
    requests = [host_view(request) for request in case.requests()]
    counts, medians, everything = {}, {name: [] for name in peers}, {name: [] for name in peers}
    for name, (peer, _, _) in peers.items():
        usual = statistics.median(repetition(peer, requests, WARM_UP))
        counts[name] = max(options.requests, min(2000, int(OWN_REPETITION_US / usual)))
    gc.collect()
    gc.disable()
    try:
        for _ in range(options.repetitions):
            for name, (peer, _, _) in peers.items():
                repetition(peer, requests, 10)
                taken = repetition(peer, requests, counts[name])
                medians[name].append(statistics.median(taken))
                everything[name] += taken
    finally:
        gc.enable()
    for name, (peer, start_s, error) in peers.items():
        ranked = sorted(everything[name])
        line = {
            "p50_us": round(statistics.median(medians[name]), 2),
            "p50_min_us": round(min(medians[name]), 2),
            "p50_max_us": round(max(medians[name]), 2),
            "p99_us": round(ranked[int(len(ranked) * 0.99)], 2),
            "device_us": device_us(peer),
            "relative_error": error,
            "repetitions": options.repetitions,
            "requests": counts[name],
            "start_s": round(start_s, 2),
        }
        report.add(peer=name, **case.key(), **line)


def time_case(model, case, options, budget, latest, report):
    """One case: starts the peers, measures those that work, and forgets what was compiled."""
    peers = {}
    for name in options.peers:
        if latest.get(name, 0) + 4 > budget.left():
            report.add(peer=name, **case.key(), failed="left out: no time to start it")
            continue
        started = start(name, model, case, report)
        if started:
            peers[name] = started
            latest[name] = started[1]
    if peers:
        measure(peers, case, options, report)
    peers.clear()
    torch._dynamo.reset()


def machine(options):
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "python": sys.version.split()[0]}
    for package in ("triton", "transformers", "numpy"):
        try:
            versions[package] = __import__(package).__version__
        except ImportError:
            versions[package] = None
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"gpu": gpu, "dtype": "f16", "seed": options.seed, "host_call": "Python", **versions}


def check_by_transformers(weights, case):
    """A sentence on how far transformers' BertModel with the same weights is from the reference, in float64."""
    try:
        from transformers import BertConfig, BertModel
    except ImportError:
        return "not checked: transformers is not there"
    try:
        config = BertConfig(**minilm.SHAPE, layer_norm_eps=minilm.EPS, hidden_act="gelu")
        model = BertModel(config, add_pooling_layer=False).double().eval()
        missing, unexpected = model.load_state_dict({k: v.double() for k, v in weights.items()}, strict=False)
        missing = [name for name in missing if not name.endswith(("position_ids", "token_type_ids"))]
        if missing or unexpected:
            return f"not checked: missing {missing[:3]}, unexpected {unexpected[:3]}"
        ids, mask = case.ids[0].long(), case.masks[0].long()
        hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    except Exception as error:
        return f"not checked: {first_line(error)}"
    hidden = (hidden * mask[:, :, None]).reshape(-1)
    expected, _ = minilm.reference({k: v.double() for k, v in weights.items()}, ids, mask)
    error = relative_error(hidden, expected.reshape(-1))
    return f"{'agrees' if error < 1e-9 else 'DISAGREES'}: relative error {error:.1e}"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, help="folder for the model and the cases")
    parser.add_argument("--time", action="store_true", help="measure; needs a GPU")
    parser.add_argument("--json", type=pathlib.Path, help="file for the lines that --time prints")
    parser.add_argument("--budget", type=float, default=230, help="seconds for everything that --time does")
    parser.add_argument("--repetitions", type=int, default=11)
    parser.add_argument("--requests", type=int, default=100, help="fewest requests of a repetition")
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--full", action="store_true", help="time every peer there is")
    parser.add_argument("--peers", help=f"comma-separated, of {', '.join(PEERS)}")
    parser.add_argument("--batches", help="comma-separated", default=",".join(map(str, BATCHES)))
    parser.add_argument("--sequences", help="comma-separated", default=",".join(map(str, SEQUENCES)))
    options = parser.parse_args()
    options.peers = options.peers.split(",") if options.peers else list(PEERS if options.full else USUAL)
    for name in options.peers:
        if name not in PEERS:
            parser.error(f'there is no peer "{name}"')
    if options.repetitions < 1 or options.requests < 1:
        parser.error("at least one repetition of one request")
    if options.time and not torch.cuda.is_available():
        parser.error("--time needs a GPU, and PyTorch sees none")
    return options


def prepare(options, report):
    """The weights and the cases with their answers; writes them where it is asked to."""
    weights = minilm.random_weights(options.seed)
    sizes = [(b, s) for b in map(int, options.batches.split(",")) for s in map(int, options.sequences.split(","))]
    cases = [Case(b, s, ragged, options.seed) for ragged in (False, True) for b, s in sizes]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    exact = {name: tensor.double().to(device) for name, tensor in weights.items()}
    for case in cases:
        case.answer(exact, device)
    checked = next((case for case in cases if case.ragged and case.batch > 1), cases[-1])
    report.add(**machine(options), checked_by_transformers=check_by_transformers(weights, checked))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        minilm.write_safetensors(options.out / "minilm.safetensors", weights, minilm.metadata())
        for case in cases:
            case.write(options.out)
    return weights, cases


def main():
    options = parse()
    report = Report(options.json)
    budget = Budget(options.budget) if options.time else None
    try:
        with torch.no_grad():
            weights, cases = prepare(options, report)
        if not options.time:
            return
        model = minilm.Encoder(weights).half().cuda()
        latest = {}
        with torch.inference_mode():
            for case in cases:
                time_case(model, case, options, budget, latest, report)
    except OutOfTime:
        budget.close()
        report.add(failed=f"the budget of {options.budget} s is spent")
    finally:
        if budget:
            budget.close()


if __name__ == "__main__":
    main()
