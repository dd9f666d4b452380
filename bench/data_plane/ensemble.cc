#include "bench/data_plane/ensemble.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bench/data_plane/worker.h"

namespace torchps {
namespace {

// Time between an order and the start, so that each worker can read the order.
constexpr absl::Duration kRunUp = absl::Milliseconds(5);
constexpr absl::Duration kWarmUp = absl::Milliseconds(100);
constexpr int64_t kWarmUpLeast = 3;
constexpr absl::Duration kMemoryInterval = absl::Milliseconds(50);

double Percentile(const std::vector<int64_t>& sorted, double part) {
  const auto index = static_cast<size_t>(part * static_cast<double>(sorted.size() - 1) + 0.5);
  return static_cast<double>(sorted[index]);
}

// Returns WHERE from a line "... address=WHERE ...", which a server or peer prints at its start.
absl::StatusOr<std::string> AddressIn(const std::string& line) {
  for (const absl::string_view word : absl::StrSplit(line, ' ')) {
    constexpr absl::string_view kKey = "address=";
    if (word.substr(0, kKey.size()) == kKey) return std::string(word.substr(kKey.size()));
  }
  return absl::InternalError(absl::StrCat("a server printed '", line, "' without an address"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Ensemble>> Ensemble::Start(Options options) {
  auto ensemble = absl::WrapUnique(new Ensemble(std::move(options)));
  if (absl::Status started = ensemble->StartAll(); !started.ok()) return started;
  return ensemble;
}

Ensemble::Ensemble(Options options) : options_(std::move(options)) {}

absl::Status Ensemble::StartAll() {
  std::vector<std::string> addresses;
  const int servers = options_.cast == Cast::kAlone ? 0 : options_.scenario.servers;
  for (int i = 0; i < servers; ++i) {
    absl::StatusOr<std::unique_ptr<Child>> server = Child::Start(options_.server_command);
    if (!server.ok()) return server.status();
    servers_.push_back(*std::move(server));
    const absl::StatusOr<std::string> line = servers_.back()->ReadLine();
    if (!line.ok()) return line.status();
    absl::StatusOr<std::string> address = AddressIn(*line);
    if (!address.ok()) return address.status();
    addresses.push_back(*std::move(address));
  }
  for (int slot = 0; slot < options_.scenario.workers; ++slot) {
    std::vector<std::string> command = options_.worker_command;
    command.push_back(absl::StrCat("--slot=", slot));
    command.push_back(absl::StrCat("--at=", absl::StrJoin(addresses, ",")));
    absl::StatusOr<std::unique_ptr<Child>> worker = Child::Start(command);
    if (!worker.ok()) return worker.status();
    workers_.push_back(*std::move(worker));
    // Starts workers one by one, because the first worker pushes the initial values.
    const absl::StatusOr<std::string> ready = workers_.back()->ReadLine();
    if (!ready.ok()) return ready.status();
  }
  return absl::OkStatus();
}

absl::StatusOr<Measurement> Ensemble::Measure(const std::string& case_name, absl::Duration duration,
                                              int64_t least) {
  const Case* the_case = nullptr;
  if (absl::Status found = FindCase(case_name, &the_case); !found.ok()) return found;
  if (the_case->cast != options_.cast) {
    return absl::InvalidArgumentError(
        absl::StrCat("case '", case_name, "' needs other processes than the first case"));
  }
  int64_t max_resident_bytes = 0;
  const auto warm_up = Round(case_name, kWarmUp, kWarmUpLeast, &max_resident_bytes);
  if (!warm_up.ok()) return warm_up.status();

  Measurement result;
  max_resident_bytes = 0;
  const absl::Duration cpu_before = CpuTime();
  const auto lines = Round(case_name, duration, least, &max_resident_bytes);
  if (!lines.ok()) return lines.status();
  const absl::Duration cpu = CpuTime() - cpu_before;

  std::vector<int64_t> latencies_ns;
  std::vector<double> rates;
  int64_t begun = 0;
  for (const std::string& line : *lines) {
    const absl::StatusOr<Account> account = ParseAccount(line);
    if (!account.ok()) return account.status();
    begun += account->begun;
    rates.push_back(static_cast<double>(account->latencies_ns.size()) * 1e9 /
                    static_cast<double>(account->counted_ns));
    latencies_ns.insert(latencies_ns.end(), account->latencies_ns.begin(),
                        account->latencies_ns.end());
  }
  std::sort(latencies_ns.begin(), latencies_ns.end());
  const double gb = static_cast<double>(options_.scenario.bytes) * the_case->payloads / 1e9;
  for (const double rate : rates) result.calls_per_s += rate;
  result.gbps = result.calls_per_s * gb;
  result.cpu_s_per_gb = absl::ToDoubleSeconds(cpu) / (static_cast<double>(begun) * gb);
  result.p50_us = Percentile(latencies_ns, 0.5) / 1e3;
  result.p99_us = Percentile(latencies_ns, 0.99) / 1e3;
  result.rss_mb = static_cast<double>(max_resident_bytes) / 1e6;
  result.fairness =
      *std::min_element(rates.begin(), rates.end()) / *std::max_element(rates.begin(), rates.end());
  result.operations = static_cast<int64_t>(latencies_ns.size());
  std::set<std::string> congestion;
  for (const auto* group : {&servers_, &workers_}) {
    for (const auto& child : *group) congestion.insert(child->CongestionControl());
  }
  congestion.erase("");
  result.congestion = absl::StrJoin(congestion, ",");
  return result;
}

absl::StatusOr<std::vector<std::string>> Ensemble::Round(const std::string& case_name,
                                                         absl::Duration duration, int64_t least,
                                                         int64_t* max_resident_bytes) {
  Order order;
  order.case_name = case_name;
  order.start_ns = NowNs() + absl::ToInt64Nanoseconds(kRunUp);
  order.duration_ns = absl::ToInt64Nanoseconds(duration);
  order.least = least;
  for (const auto& worker : workers_) {
    if (absl::Status said = worker->Say(ToLine(order)); !said.ok()) return said;
  }
  std::vector<std::string> lines;
  for (const auto& worker : workers_) {
    while (!worker->AwaitOutput(kMemoryInterval)) {
      *max_resident_bytes = std::max(*max_resident_bytes, ResidentBytes());
    }
    absl::StatusOr<std::string> line = worker->ReadLine();
    if (!line.ok()) return line.status();
    lines.push_back(*std::move(line));
  }
  *max_resident_bytes = std::max(*max_resident_bytes, ResidentBytes());
  return lines;
}

absl::Duration Ensemble::CpuTime() const {
  absl::Duration sum;
  for (const auto* group : {&servers_, &workers_}) {
    for (const auto& child : *group) sum += child->CpuTime();
  }
  return sum;
}

int64_t Ensemble::ResidentBytes() const {
  int64_t sum = 0;
  for (const auto& child : servers_.empty() ? workers_ : servers_) sum += child->ResidentBytes();
  return sum;
}

}  // namespace torchps
