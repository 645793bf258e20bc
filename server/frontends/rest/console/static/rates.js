// Rates and latencies between two polls of the server's counts.

const RATE_SECONDS = 10;
const LATENCY_SECONDS = 60;
const CHART_SECONDS = 120;

export class History {
  #polls = [];

  add(status) {
    // Counts that fall mean that the server has restarted.
    const last = this.#polls.at(-1);
    if (last && countRequests(status) < countRequests(last)) this.#polls = [];
    this.#polls.push(status);
    const oldest = status.time_ms - 1000 * CHART_SECONDS;
    while (this.#polls.length > 2 && this.#polls[1].time_ms < oldest) this.#polls.shift();
  }

  // Returns the requests and errors per second of a model, or of all models; null if unknown.
  rates(model) {
    const now = this.#polls.at(-1);
    const before = this.#before(RATE_SECONDS);
    if (!before) return null;
    const seconds = (now.time_ms - before.time_ms) / 1000;
    const requests = countRequests(now, model) - countRequests(before, model);
    const errors = countErrors(now, model) - countErrors(before, model);
    return {requests: requests / seconds, errors: errors / seconds};
  }

  // Returns a quantile of a model's latency in milliseconds; null without requests.
  latency(model, quantile) {
    const before = this.#before(LATENCY_SECONDS);
    if (!before) return null;
    const now = this.#polls.at(-1);
    const earlier = find(before, model)?.latency_counts ?? [];
    const counts = (find(now, model)?.latency_counts ?? []).map(
      (count, index) => count - (earlier[index] ?? 0));
    return interpolate(counts, now.latency_bounds_us, quantile) / 1000 || null;
  }

  // Returns, for each poll except the first, its age in seconds, and the requests per second since
  // the previous poll.
  series() {
    return this.#polls.slice(1).map((poll, index) => {
      const before = this.#polls[index];
      const seconds = (poll.time_ms - before.time_ms) / 1000;
      return {
        age: (this.#polls.at(-1).time_ms - poll.time_ms) / 1000,
        rate: (countRequests(poll) - countRequests(before)) / seconds,
      };
    }).filter((point) => point.age <= CHART_SECONDS);
  }

  #before(seconds) {
    const now = this.#polls.at(-1);
    return this.#polls.find(
      (poll) => poll !== now && now.time_ms - poll.time_ms <= 1000 * seconds + 500);
  }
}

export const chartSeconds = CHART_SECONDS;

function find(status, model) {
  return status.models.find((entry) => entry.name === model);
}

function sum(status, model, isCounted) {
  let total = 0;
  for (const entry of status.models) {
    if (model !== undefined && entry.name !== model) continue;
    for (const [code, count] of Object.entries(entry.requests)) if (isCounted(code)) total += count;
  }
  return total;
}

function countRequests(status, model) {
  return sum(status, model, () => true);
}

function countErrors(status, model) {
  return sum(status, model, (code) => code !== "OK");
}

// Returns a quantile of a histogram, linear within its bucket as in Prometheus.
function interpolate(counts, bounds, quantile) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  let rank = quantile * total;
  if (total <= 0) return 0;
  for (let index = 0; index < counts.length; index++) {
    if (rank <= counts[index] && counts[index] > 0) {
      if (index >= bounds.length) return bounds.at(-1);
      const lower = index ? bounds[index - 1] : 0;
      return lower + (bounds[index] - lower) * (rank / counts[index]);
    }
    rank -= counts[index];
  }
  return bounds.at(-1);
}
