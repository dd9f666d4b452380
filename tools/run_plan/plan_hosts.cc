#include "tools/run_plan/plan_hosts.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/types.h"

namespace torchps {
namespace {

// A larger number on one machine is probably a typing error.
constexpr int kMaxServers = 1024;
// Per machine.
constexpr int kMaxGpus = 64;
// Per model; each stage is a process.
constexpr int kMaxStages = 64;

// GPUs per machine and per worker, from --gpus.
struct Gpus {
  int per_host = 0;
  int per_worker = 0;
};

absl::StatusOr<std::optional<Gpus>> PlanGpus(const FlagValues& flags) {
  if (!flags.Has("gpus")) {
    if (!flags.Has("gpus_per_worker")) return std::optional<Gpus>();
    return absl::InvalidArgumentError("--gpus_per_worker needs --gpus=N, a machine's GPUs");
  }
  if (flags.Has("workers")) {
    return absl::InvalidArgumentError(
        "--gpus and --workers exclude each other: a machine runs one worker for its GPUs, or with "
        "--gpus_per_worker=M one for every M GPUs");
  }
  if (flags.Get("device", "cuda") != "cuda") {
    return absl::InvalidArgumentError(absl::StrCat("--gpus and --device=", flags.Get("device"),
                                                   " exclude each other: --gpus selects the GPUs"));
  }
  const absl::StatusOr<int64_t> per_host = flags.Integer("gpus", 0, 1, kMaxGpus);
  if (!per_host.ok()) return per_host.status();
  const absl::StatusOr<int64_t> per_worker =
      flags.Integer("gpus_per_worker", *per_host, 1, kMaxGpus);
  if (!per_worker.ok()) return per_worker.status();
  return std::make_optional(Gpus{static_cast<int>(*per_host), static_cast<int>(*per_worker)});
}

absl::StatusOr<Hosts> HostsOfFile(const FlagValues& flags) {
  for (const char* flag : {"servers", "workers"}) {
    if (flags.Has(flag)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " and --hosts exclude each other: the file says how many"));
    }
  }
  return ReadHostsFile(flags.Get("hosts"));
}

absl::StatusOr<Hosts> HostsHere(const FlagValues& flags, int default_workers) {
  const absl::StatusOr<int64_t> servers = flags.Integer("servers", 2, 1, kMaxServers);
  if (!servers.ok()) return servers.status();
  const absl::StatusOr<int64_t> workers = flags.Integer("workers", default_workers, 1, kMaxSlots);
  if (!workers.ok()) return workers.status();
  Hosts hosts;
  hosts.servers.resize(*servers);
  hosts.workers.resize(*workers);
  return hosts;
}

// Splits each worker into processes, from --stages.
absl::Status PlanStages(const FlagValues& flags, Hosts* hosts) {
  if (flags.Has("hosts")) {
    return absl::InvalidArgumentError(
        "--stages and --hosts exclude each other: the file says where each stage runs, as "
        "'worker HOST:PORT,HOST:PORT'");
  }
  if (flags.Has("gpus")) {
    return absl::InvalidArgumentError(
        "--stages and --gpus exclude each other: each process of a worker computes on one device");
  }
  const absl::StatusOr<int64_t> stages = flags.Integer("stages", 0, 1, kMaxStages);
  if (!stages.ok()) return stages.status();
  return SplitIntoStages(static_cast<int>(*stages), hosts);
}

}  // namespace

absl::StatusOr<Hosts> PlanHosts(const FlagValues& flags, const JobSpec& job) {
  const absl::StatusOr<std::optional<Gpus>> gpus = PlanGpus(flags);
  if (!gpus.ok()) return gpus.status();
  absl::StatusOr<Hosts> hosts = flags.Has("hosts")
                                    ? HostsOfFile(flags)
                                    : HostsHere(flags, gpus->has_value() ? 1 : job.workers());
  if (hosts.ok() && flags.Has("stages")) {
    if (absl::Status split = PlanStages(flags, &*hosts); !split.ok()) return split;
  }
  if (hosts.ok() && gpus->has_value()) {
    const absl::Status spread = SpreadGpus((*gpus)->per_host, (*gpus)->per_worker, &*hosts);
    if (!spread.ok()) return spread;
  }
  // On one machine the slot numbers suffice.
  if (hosts.ok() && flags.Has("hosts")) NumberProcesses(&*hosts);
  return hosts;
}

absl::Status CheckHosts(const FlagValues& flags, const Hosts& hosts) {
  const auto beyond = std::find_if(hosts.servers.begin(), hosts.servers.end(),
                                   [](const Place& place) { return !IsLoopback(place.host); });
  if (beyond != hosts.servers.end() && !flags.Has("insecure") && !flags.Has("certs")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the server on ", beyond->host, " would listen on the network without encryption; ",
        "give it certificates with --certs=DIR ('psctl certs' makes them; DIR must exist on every ",
        "machine), or set --insecure if that network is private"));
  }
  const auto stage_beyond = [](const Place& worker) {
    return std::any_of(worker.stages.begin(), worker.stages.end(),
                       [](const Place& stage) { return !IsLoopback(stage.host); });
  };
  const bool any_beyond = std::any_of(hosts.workers.begin(), hosts.workers.end(), stage_beyond);
  if (any_beyond && !flags.Has("certs")) {
    return absl::InvalidArgumentError(
        "the stages of a model on several machines require TLS; give them certificates with "
        "--certs=DIR ('psctl certs' makes them)");
  }
  const bool has_stages = std::any_of(hosts.workers.begin(), hosts.workers.end(),
                                      [](const Place& worker) { return !worker.stages.empty(); });
  if (has_stages && (flags.Has("target") || flags.Has("target_every"))) {
    return absl::InvalidArgumentError(
        "--target and --target_every measure the whole model in one process, so they do not work "
        "with a model in stages; the workers evaluate its epochs");
  }
  if (!flags.Has("hosts")) {
    for (const char* flag : {"ssh", "remote_binary_dir"}) {
      if (flags.Has(flag)) {
        return absl::InvalidArgumentError(absl::StrCat("--", flag, " works with --hosts only"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace torchps
