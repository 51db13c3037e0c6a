"""The loader of a scenario as a SimPy model: the reference for how fast this crate's simulator is, and for what it computes.

Reads one JSON object from standard input and prints one:

    in    costs            file of u64, little endian: for each sample in plan order its encoded bytes, time to the first byte, CPU time of
                           the read and CPU time of decoding; then for each batch its copy and the consumer's step. Times in ns.
          samples, batch   the second divides the first
          lanes, ring, threads, permits, copies
                           samples under way, slots, decoding threads, batches that exist at once, copies at once
          link, connection bytes per second of the shared link and of one read
    out   end_ns           when the consumer ended its last step
          batches          how many it got
          taken_ns         the sum of the instants at which it got them
          wall_s, cpu_s    of the simulation proper, without imports and reading of the costs

It holds what the simulated machine holds where nothing fails and cores suffice. It is written as a SimPy user would write it, with one
exception: the link keeps its transfers in virtual time, in O(log n) per change, as ours does.
"""

import array
import heapq
import json
import sys
import time

import simpy


class Link:
    """A link that n transfers share: each runs at the connection's rate or at 1/n of the link's, whichever is less."""

    def __init__(self, env, link, connection):
        self.env, self.link, self.connection = env, link, connection
        self.work = 0  # done for a transfer present from the beginning, in 1e-9 bytes
        self.updated = 0
        self.rate = min(connection, link)
        self.transfers = []
        self.count = 0
        self.generation = 0

    def transfer(self, size):
        """An event that occurs when `size` bytes have come."""
        self.advance()
        done = self.env.event()
        self.count += 1
        heapq.heappush(self.transfers, (self.work + size * 1_000_000_000, self.count, done))
        self.changed()
        return done

    def advance(self):
        if self.transfers:
            self.work += (self.env.now - self.updated) * self.rate
        self.updated = self.env.now

    def changed(self):
        self.generation += 1
        if self.transfers:
            self.rate = max(1, min(self.connection, self.link // len(self.transfers)))
            wait = (max(0, self.transfers[0][0] - self.work) + self.rate // 2) // self.rate
            self.env.timeout(wait, self.generation).callbacks.append(self.due)

    def due(self, event):
        if event.value != self.generation:
            return
        self.advance()
        # Times are whole nanoseconds, the nearest to the instant proper, as ours are.
        nearly = self.work + self.rate - self.rate // 2
        while self.transfers and self.transfers[0][0] < nearly:
            heapq.heappop(self.transfers)[2].succeed()
        self.changed()


class Loader:
    def __init__(self, env, model, costs):
        self.env, self.batch, self.samples = env, model["batch"], model["samples"]
        self.batches = self.samples // self.batch
        self.per_sample, self.per_batch = costs[: 4 * self.samples], costs[4 * self.samples :]
        self.link = Link(env, model["link"], model["connection"])
        self.pool = simpy.Resource(env, model["threads"])
        self.slots = simpy.Container(env, init=model["ring"])
        self.permits = simpy.Container(env, init=model["permits"])
        self.sealed = simpy.Store(env)
        self.ready = [env.event() for _ in range(self.batches)]
        self.launched = 0
        self.filled = bytearray(self.samples)
        self.drained = 0
        self.end = self.taken = 0
        for _ in range(model["lanes"]):
            env.process(self.lane())
        for _ in range(model["copies"]):
            env.process(self.copy())
        env.process(self.consume())

    def lane(self):
        env = self.env
        while self.launched < self.samples:
            yield self.slots.get(1)
            if self.launched == self.samples:
                return
            sample = self.launched
            self.launched += 1
            size, first_byte, read, decode = self.per_sample[4 * sample : 4 * sample + 4]
            yield env.timeout(first_byte)
            yield self.link.transfer(size)
            yield env.timeout(read)
            with self.pool.request() as thread:
                yield thread
                yield env.timeout(decode)
            self.fill(sample)

    def fill(self, sample):
        """Samples leave in plan order, whatever order they are decoded in."""
        self.filled[sample] = 1
        while self.drained < self.samples and self.filled[self.drained]:
            self.drained += 1
            if self.drained % self.batch == 0:
                self.sealed.put(self.drained // self.batch - 1)

    def copy(self):
        while True:
            batch = yield self.sealed.get()
            yield self.permits.get(1)
            yield self.env.timeout(self.per_batch[2 * batch])
            yield self.slots.put(self.batch)
            self.ready[batch].succeed()

    def consume(self):
        for batch in range(self.batches):
            yield self.ready[batch]
            self.taken += self.env.now
            yield self.env.timeout(self.per_batch[2 * batch + 1])
            yield self.permits.put(1)
        self.end = self.env.now


def main():
    model = json.load(sys.stdin)
    costs = array.array("Q")
    with open(model["costs"], "rb") as file:
        costs.frombytes(file.read())
    if sys.byteorder == "big":
        costs.byteswap()
    costs = costs.tolist()
    wall, cpu = time.perf_counter(), time.process_time()
    env = simpy.Environment(initial_time=0)
    loader = Loader(env, model, costs)
    env.run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    result = dict(end_ns=loader.end, batches=loader.batches, taken_ns=loader.taken, wall_s=wall, cpu_s=cpu, version=simpy.__version__)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
