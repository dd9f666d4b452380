// data_plane: measures the transfer speed of gradients and values between processes on this
// machine.
//
// Starts servers and workers as separate processes on free ports, lets the workers repeat one
// operation at the same time, and prints one JSON object per repetition. Repetitions of several
// cases alternate. In --interactive mode, each line on standard input, "CASE SECONDS LEAST",
// requests one repetition with at least LEAST operations; bench/run.py uses this to alternate
// between scenarios.
//
// bench/README.md lists the cases and explains the figures.

#include <libgen.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "bench/data_plane/ensemble.h"
#include "bench/data_plane/operation.h"
#include "bench/data_plane/scenario.h"
#include "bench/data_plane/tcp.h"
#include "bench/data_plane/worker.h"
#include "torchps/common/process/command_line.h"
#include "torchps/security/certificate_authority.h"

ABSL_FLAG(std::vector<std::string>, case, {"push_apply"}, "cases to measure, comma-separated");
ABSL_FLAG(std::string, size, "16MiB",
          "float32 bytes of the model: a number, optionally with KiB or MiB");
ABSL_FLAG(int, workers, 1, "worker processes, all at the same time");
ABSL_FLAG(int, servers, 1, "servers that share the model");
ABSL_FLAG(std::string, transport, "tcp", "tcp, tls or shm");
ABSL_FLAG(std::string, certs, "",
          "with --transport=tls: directory of 'psctl certs'; default: temporary certificates");
ABSL_FLAG(std::string, encoding, "float32", "float32, bfloat16, int8 or top_k");
ABSL_FLAG(std::string, optimizer, "sgd {}",
          "OptimizerSpec in text format, without the learning rate");
ABSL_FLAG(std::string, durability, "none",
          "none or log; log needs --server_flags=--dir=DIR with a new DIR");
ABSL_FLAG(double, seconds, 0.5, "seconds of a repetition");
ABSL_FLAG(int, least, 3, "minimum number of operations of a repetition");
ABSL_FLAG(int, repetitions, 5, "repetitions of each case");
ABSL_FLAG(bool, interactive, false, "read requests for repetitions from standard input");
ABSL_FLAG(std::string, ps_server, "", "path of ps_server; default: where bazel builds it");
ABSL_FLAG(std::string, server_flags, "", "further flags of ps_server, separated by blanks");
ABSL_FLAG(std::string, server_prefix, "", "prefix of a server's command: 'taskset -c 1'");
ABSL_FLAG(std::string, worker_prefix, "", "prefix of a worker's command");
ABSL_FLAG(std::string, listen_host, "127.0.0.1", "address that servers listen on");
// For internal use: the program starts itself in other roles.
ABSL_FLAG(std::string, role, "driver", "driver; the driver starts workers and peers itself");
ABSL_FLAG(int, slot, 0, "slot of a worker");
ABSL_FLAG(std::vector<std::string>, at, {}, "for a worker: addresses of the servers");

namespace torchps {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxBytes = int64_t{8} << 30;

absl::StatusOr<int64_t> ParseSize(absl::string_view text) {
  int64_t unit = 1;
  if (absl::ConsumeSuffix(&text, "KiB")) unit = 1 << 10;
  if (absl::ConsumeSuffix(&text, "MiB")) unit = 1 << 20;
  int64_t number = 0;
  if (!absl::SimpleAtoi(text, &number) || number < 1 || number > kMaxBytes / unit ||
      number * unit % sizeof(float) != 0) {
    return absl::InvalidArgumentError(
        "--size is not a multiple of 4 bytes up to 8192MiB, as in 4096, 64KiB or 16MiB");
  }
  return number * unit;
}

absl::StatusOr<Scenario> ScenarioFromFlags() {
  Scenario scenario;
  const absl::StatusOr<int64_t> bytes = ParseSize(absl::GetFlag(FLAGS_size));
  if (!bytes.ok()) return bytes.status();
  scenario.bytes = *bytes;
  scenario.workers = absl::GetFlag(FLAGS_workers);
  scenario.servers = absl::GetFlag(FLAGS_servers);
  scenario.transport = absl::GetFlag(FLAGS_transport);
  scenario.encoding = absl::GetFlag(FLAGS_encoding);
  scenario.optimizer = absl::GetFlag(FLAGS_optimizer);
  scenario.durability = absl::GetFlag(FLAGS_durability);
  if (scenario.workers < 1 || scenario.servers < 1) {
    return absl::InvalidArgumentError("--workers and --servers are at least 1");
  }
  scenario.certs = absl::GetFlag(FLAGS_certs);
  if (scenario.transport != "tcp" && scenario.transport != "tls" && scenario.transport != "shm") {
    return absl::InvalidArgumentError(
        absl::StrCat("--transport is ", scenario.transport, "; expected tcp, tls or shm"));
  }
  if (scenario.durability != "none" && scenario.durability != "log") {
    return absl::InvalidArgumentError(
        absl::StrCat("--durability is ", scenario.durability, "; expected none or log"));
  }
  return scenario;
}

// Rounds to six digits, for readability.
Json Rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return Json::parse(text);
}

void Print(const Scenario& scenario, Cast cast, const std::string& case_name,
           const Measurement& measured) {
  Json json;
  json["case"] = case_name;
  json["size"] = scenario.bytes;
  json["workers"] = scenario.workers;
  json["servers"] = scenario.servers;
  json["transport"] = cast == Cast::kAlone ? "memory" : scenario.transport;
  json["encoding"] = scenario.encoding;
  json["optimizer"] = scenario.optimizer;
  json["durability"] = scenario.durability;
  json["gbps"] = Rounded(measured.gbps);
  json["cpu_s_per_gb"] = Rounded(measured.cpu_s_per_gb);
  json["calls_per_s"] = Rounded(measured.calls_per_s);
  json["p50_us"] = Rounded(measured.p50_us);
  json["p99_us"] = Rounded(measured.p99_us);
  json["rss_mb"] = Rounded(measured.rss_mb);
  json["fairness"] = Rounded(measured.fairness);
  json["operations"] = measured.operations;
  json["congestion_control"] = measured.congestion;
  std::cout << json.dump() << std::endl;
}

std::vector<std::string> Words(const std::string& text) {
  return absl::StrSplit(text, ' ', absl::SkipEmpty());
}

absl::StatusOr<std::string> OwnPath() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (length <= 0) return absl::InternalError("/proc/self/exe cannot be read");
  return std::string(path, length);
}

// Makes temporary certificates for "tls" if --certs is not set, and removes them on destruction.
class Certificates {
 public:
  Certificates() = default;
  Certificates(const Certificates&) = delete;
  Certificates& operator=(const Certificates&) = delete;
  ~Certificates() {
    std::error_code ignored;
    if (!made_.empty()) std::filesystem::remove_all(made_, ignored);
  }

  // Sets --certs for this process and the processes that it starts.
  absl::Status Provide() {
    if (absl::GetFlag(FLAGS_transport) != "tls" || !absl::GetFlag(FLAGS_certs).empty()) {
      return absl::OkStatus();
    }
    std::string directory = (std::filesystem::temp_directory_path() / "data_plane-XXXXXX").string();
    if (mkdtemp(directory.data()) == nullptr) {
      return absl::UnavailableError(absl::StrCat("cannot make ", directory));
    }
    made_ = directory;
    const absl::Time now = absl::Now();
    const auto authority =
        CertificateAuthority::Create("bench", now - absl::Hours(1), now + absl::Hours(100));
    if (!authority.ok()) return authority.status();
    for (const Role role : {Role::kServer, Role::kWorker}) {
      std::vector<std::string> hosts;
      if (role == Role::kServer) hosts = {absl::GetFlag(FLAGS_listen_host)};
      const auto issued =
          (*authority)
              ->Issue(
                  {{"bench", role, "any"}, hosts, now - absl::Hours(1), now + absl::Hours(100)});
      if (!issued.ok()) return issued.status();
      const absl::Status written = WriteCertificates(absl::StrCat(directory, "/", RoleName(role)),
                                                     (*authority)->certificate_pem(), *issued);
      if (!written.ok()) return written;
    }
    absl::SetFlag(&FLAGS_certs, directory);
    return absl::OkStatus();
  }

 private:
  std::string made_;
};

absl::StatusOr<Ensemble::Options> EnsembleFromFlags(const std::vector<std::string>& own_arguments) {
  Ensemble::Options options;
  const absl::StatusOr<Scenario> scenario = ScenarioFromFlags();
  if (!scenario.ok()) return scenario.status();
  options.scenario = *scenario;
  const std::string case_name = absl::GetFlag(FLAGS_case).front();
  const Case* first = nullptr;
  if (absl::Status found = FindCase(case_name, &first); !found.ok()) return found;
  options.cast = first->cast;

  const absl::StatusOr<std::string> self = OwnPath();
  if (!self.ok()) return self.status();
  const auto self_as = [&](const std::string& role, const std::string& prefix) {
    std::vector<std::string> command = Words(prefix);
    command.push_back(*self);
    command.insert(command.end(), own_arguments.begin(), own_arguments.end());
    command.push_back(absl::StrCat("--role=", role));
    if (!options.scenario.certs.empty()) {
      command.push_back(absl::StrCat("--certs=", options.scenario.certs));
    }
    return command;
  };
  options.worker_command = self_as("worker", absl::GetFlag(FLAGS_worker_prefix));
  if (options.cast == Cast::kPlainPeer) {
    options.server_command = self_as("peer", absl::GetFlag(FLAGS_server_prefix));
  } else if (options.cast == Cast::kTorchpsServer) {
    std::string path = absl::GetFlag(FLAGS_ps_server);
    if (path.empty()) {
      std::string folder = *self;
      path = absl::StrCat(dirname(folder.data()), "/../../torchps/ps_server");
    }
    options.server_command = Words(absl::GetFlag(FLAGS_server_prefix));
    options.server_command.push_back(path);
    options.server_command.push_back(
        absl::StrCat("--listen=", absl::GetFlag(FLAGS_listen_host), ":0"));
    options.server_command.push_back("--exit_with_parent");
    if (options.scenario.transport == "tls") {
      options.server_command.push_back(absl::StrCat("--certs=", options.scenario.certs));
    }
    for (const std::string& flag : Words(absl::GetFlag(FLAGS_server_flags))) {
      options.server_command.push_back(flag);
    }
  }
  return options;
}

absl::Status Drive(const std::vector<std::string>& own_arguments) {
  Certificates certificates;
  if (absl::Status provided = certificates.Provide(); !provided.ok()) return provided;
  const absl::StatusOr<Ensemble::Options> options = EnsembleFromFlags(own_arguments);
  if (!options.ok()) return options.status();
  const absl::StatusOr<std::unique_ptr<Ensemble>> ensemble = Ensemble::Start(*options);
  if (!ensemble.ok()) return ensemble.status();
  const auto measure = [&](const std::string& name, double seconds, int64_t least) -> absl::Status {
    const auto measured = (*ensemble)->Measure(name, absl::Seconds(seconds), least);
    if (!measured.ok()) return measured.status();
    Print(options->scenario, options->cast, name, *measured);
    return absl::OkStatus();
  };

  if (!absl::GetFlag(FLAGS_interactive)) {
    for (int i = 0; i < absl::GetFlag(FLAGS_repetitions); ++i) {
      for (const std::string& name : absl::GetFlag(FLAGS_case)) {
        const absl::Status status =
            measure(name, absl::GetFlag(FLAGS_seconds), absl::GetFlag(FLAGS_least));
        if (!status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const std::vector<std::string> words = Words(line);
    double seconds = 0;
    int64_t least = 0;
    if (words.size() != 3 || !absl::SimpleAtod(words[1], &seconds) ||
        !absl::SimpleAtoi(words[2], &least)) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected CASE SECONDS LEAST, got '", line, "'"));
    }
    if (absl::Status status = measure(words[0], seconds, least); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status BeWorker() {
  const absl::StatusOr<Scenario> scenario = ScenarioFromFlags();
  if (!scenario.ok()) return scenario.status();
  const Peers peers = {absl::GetFlag(FLAGS_slot), absl::GetFlag(FLAGS_at)};
  const std::string name = absl::GetFlag(FLAGS_case).front();
  const Case* the_case = nullptr;
  if (absl::Status found = FindCase(name, &the_case); !found.ok()) return found;
  absl::StatusOr<std::unique_ptr<Stage>> stage =
      the_case->cast == Cast::kAlone           ? MakeMemoryStage(*scenario)
      : the_case->cast == Cast::kTorchpsServer ? MakeTorchpsStage(*scenario, peers)
                                               : MakeTcpStage(*scenario, peers);
  if (!stage.ok()) return stage.status();
  return ObeyOrders(**stage);
}

}  // namespace
}  // namespace torchps

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  absl::SetProgramUsageMessage("measures the data plane; see bench/README.md");
  absl::Status status = torchps::CheckCommandLine(argc, argv);
  if (status.ok()) {
    absl::ParseCommandLine(argc, argv);
    const std::string role = absl::GetFlag(FLAGS_role);
    status = role == "worker" ? torchps::BeWorker()
             : role == "peer" ? torchps::ServeTcp(absl::GetFlag(FLAGS_listen_host))
                              : torchps::Drive({argv + 1, argv + argc});
  }
  if (!status.ok()) {
    std::fprintf(stderr, "data_plane: %s\n", std::string(status.message()).c_str());
  }
  std::fflush(stdout);
  _exit(status.ok() ? 0 : 1);  // does not tear down gRPC (torchps/transport/grpc_process.h)
}
