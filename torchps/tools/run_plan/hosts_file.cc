#include "torchps/tools/run_plan/hosts_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "torchps/common/text.h"
#include "torchps/common/types.h"
#include "torchps/tools/base/tcp.h"

namespace torchps {
namespace {

constexpr int kLargestPort = 65535;

bool IsWhole(absl::string_view text, int least, int most, int* value) {
  return absl::SimpleAtoi(text, value) && *value >= least && *value <= most;
}

// Converts "0,1" to "cuda:0" and "cuda:1".
bool ReadGpus(absl::string_view numbers, std::vector<std::string>* names) {
  std::set<int> seen;
  for (absl::string_view number : absl::StrSplit(numbers, ',')) {
    int gpu = 0;
    if (!IsWhole(number, 0, kMaxGpus - 1, &gpu) || !seen.insert(gpu).second) return false;
    names->push_back(absl::StrCat("cuda:", gpu));
  }
  return true;
}

// Moves the port from the end of `place->host` to `place->port`, if present.
absl::Status SplitPort(Place* place) {
  // If there are several colons, this is an IPv6 address without a port.
  const size_t colon = place->host.rfind(':');
  const bool bracketed = absl::StrContains(place->host, "]:");
  if (colon == std::string::npos || (!bracketed && place->host.find(':') != colon)) {
    return absl::OkStatus();
  }
  const std::string port = place->host.substr(colon + 1);
  if (!IsWhole(port, 1, kLargestPort, &place->port)) {
    return absl::InvalidArgumentError(
        absl::StrCat("port '", port, "': expected a number from 1 to ", kLargestPort));
  }
  place->host.resize(colon);
  return absl::OkStatus();
}

// Parses "a:1,b:2" into the processes of one worker.
absl::Status ReadStages(const std::string& addresses, Place* worker) {
  std::set<std::string> seen;
  for (const std::string& address : std::vector<std::string>(absl::StrSplit(addresses, ','))) {
    Place stage;
    stage.host = address;
    if (absl::Status status = SplitPort(&stage); !status.ok()) return status;
    if (stage.host.empty() || stage.host.front() == '-' || stage.port == 0 ||
        !seen.insert(address).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", address, "': expected HOST:PORT for each stage of the model, each once"));
    }
    worker->stages.push_back(std::move(stage));
  }
  worker->host = worker->stages.front().host;
  return absl::OkStatus();
}

// Assigns the GPUs to the processes of each machine in stage order, repeating the list as needed.
void ShareOut(const std::vector<std::string>& gpus, Place* worker) {
  std::map<std::string, size_t> taken;
  for (Place& stage : worker->stages) stage.device = gpus[taken[stage.host]++ % gpus.size()];
}

// Parses the words of a server or worker line and appends the part to `hosts`.
absl::Status AddPart(const std::vector<std::string>& words, Hosts& hosts) {
  const std::string& kind = words[0];
  if (kind != "server" && kind != "worker") {
    return absl::InvalidArgumentError(
        absl::StrCat("'", Printable(kind),
                     "' is not a part of a cluster; expected 'server HOST[:PORT]', 'worker HOST "
                     "[slots=N | gpus=0,1]' or 'worker HOST:PORT,HOST:PORT [gpus=0,1]'"));
  }
  // ssh would treat a host that begins with "-" as an option.
  if (words.size() < 2 || absl::StartsWith(words[1], "-")) {
    return absl::InvalidArgumentError(absl::StrCat("expected a host after '", kind, "'"));
  }
  Place place;
  place.host = words[1];
  if (kind == "server") {
    if (words.size() > 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", words[2], "' after the server's address is not expected"));
    }
    if (absl::Status status = SplitPort(&place); !status.ok()) return status;
    if (place.host.empty()) return absl::InvalidArgumentError("expected a host before the port");
    if (absl::StrContains(place.host, '@')) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", place.host,
                       "': workers reach the server by this name, so it must not contain a user; ",
                       "--ssh='ssh -o BatchMode=yes -l USER' sets the user"));
    }
    hosts.servers.push_back(place);
    return absl::OkStatus();
  }

  int slots = 1;
  std::vector<std::string> gpus;
  if (absl::StrContains(place.host, ',')) {
    if (absl::Status status = ReadStages(words[1], &place); !status.ok()) return status;
    absl::string_view value = words.back();
    if (words.size() > 3 ||
        (words.size() == 3 && !(absl::ConsumePrefix(&value, "gpus=") && ReadGpus(value, &gpus)))) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", words.back(),
                       "' after the addresses of a model's stages: expected gpus=0,1 with the "
                       "numbers of GPUs, each once, for the processes of a machine in turn"));
    }
    if (!gpus.empty()) ShareOut(gpus, &place);
  } else if (words.size() > 2) {
    absl::string_view value = words[2];
    const bool fits = words.size() == 3 && (absl::ConsumePrefix(&value, "gpus=")
                                                ? ReadGpus(value, &gpus)
                                                : absl::ConsumePrefix(&value, "slots=") &&
                                                      IsWhole(value, 1, kMaxSlots, &slots));
    if (!fits) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", words.back(), "': expected slots=N with N from 1 to ", kMaxSlots,
                       ", or gpus=0,1 with the numbers of GPUs, each once"));
    }
    place.device = absl::StrJoin(gpus, ",");
  }
  hosts.workers.insert(hosts.workers.end(), slots, place);
  return absl::OkStatus();
}

absl::Status CheckWhole(const Hosts& hosts) {
  if (hosts.servers.empty()) {
    return absl::InvalidArgumentError("no server; expected a line 'server HOST[:PORT]'");
  }
  if (hosts.workers.empty()) {
    return absl::InvalidArgumentError("no worker; expected a line 'worker HOST [slots=N]'");
  }
  if (hosts.workers.size() > static_cast<size_t>(kMaxSlots)) {
    return absl::InvalidArgumentError(
        absl::StrCat(hosts.workers.size(), " workers; at most ", kMaxSlots, " are possible"));
  }
  std::set<std::string> addresses;
  for (const Place& server : hosts.servers) {
    if (server.port == 0) continue;
    const std::string address = absl::StrCat(server.host, ":", server.port);
    if (!addresses.insert(address).second) {
      return absl::InvalidArgumentError(absl::StrCat("two servers would listen on ", address));
    }
  }
  const auto loopback = [](const Place& place) { return IsLoopback(place.host); };
  const auto local = std::find_if(hosts.servers.begin(), hosts.servers.end(), loopback);
  std::vector<Place> processes;
  std::set<std::string> stages;
  for (const Place& worker : hosts.workers) {
    if (worker.stages.empty()) processes.push_back(worker);
    processes.insert(processes.end(), worker.stages.begin(), worker.stages.end());
    for (const std::string& address : StageAddresses(worker)) {
      if (stages.insert(address).second) continue;
      return absl::InvalidArgumentError(absl::StrCat("two stages would listen on ", address));
    }
  }
  const auto away = std::find_if_not(processes.begin(), processes.end(), loopback);
  if (local != hosts.servers.end() && away != processes.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the server on ", local->host, " cannot be reached by the worker on ",
                     away->host, "; give the server the name that other machines know it by"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Hosts> ParseHosts(absl::string_view text) {
  if (absl::StrContains(text, '\0')) {
    return absl::InvalidArgumentError(
        "it is not plain text, because it contains NUL bytes; save it as UTF-8");
  }
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");
  const std::string plain = absl::StrReplaceAll(text, {{"\r\n", "\n"}, {"\r", "\n"}});
  Hosts hosts;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(plain, '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.empty()) continue;
    if (const absl::Status status = AddPart(words, hosts); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", status.message()));
    }
  }
  if (const absl::Status status = CheckWhole(hosts); !status.ok()) return status;
  return hosts;
}

absl::StatusOr<Hosts> ReadHostsFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  std::stringstream text;
  if (!(text << file.rdbuf())) {
    return absl::NotFoundError(absl::StrCat("cannot read the hosts file ", path, ": ",
                                            errno != 0 ? std::strerror(errno) : "it is empty"));
  }
  absl::StatusOr<Hosts> hosts = ParseHosts(text.str());
  if (!hosts.ok()) {
    return absl::Status(hosts.status().code(), absl::StrCat(path, ": ", hosts.status().message()));
  }
  return hosts;
}

absl::Status SpreadGpus(int gpus, int per_worker, Hosts* hosts) {
  if (gpus % per_worker != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(gpus, " GPUs of a machine cannot be divided into groups of ", per_worker,
                     "; expected --gpus to be a multiple of --gpus_per_worker"));
  }
  std::set<std::string> seen;
  std::vector<Place> workers;
  for (Place worker : hosts->workers) {
    if (!worker.stages.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the hosts file has a worker of several processes on ", worker.host,
                       "; name their GPUs in its line, as gpus=0,1, and leave out --gpus"));
    }
    if (!worker.device.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the hosts file names the GPUs of ", worker.host, "; leave out --gpus"));
    }
    if (!seen.insert(worker.host).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the hosts file has more than one worker on ", worker.host,
                       "; give each machine one line without slots=N"));
    }
    for (int first = 0; first < gpus; first += per_worker) {
      std::vector<std::string> names;
      for (int gpu = first; gpu < first + per_worker; ++gpu) {
        names.push_back(absl::StrCat("cuda:", gpu));
      }
      worker.device = per_worker == 1 ? "cuda" : absl::StrJoin(names, ",");
      workers.push_back(worker);
    }
  }
  if (workers.size() > static_cast<size_t>(kMaxSlots)) {
    return absl::InvalidArgumentError(
        absl::StrCat(workers.size(), " workers; at most ", kMaxSlots, " are possible"));
  }
  hosts->workers = std::move(workers);
  return absl::OkStatus();
}

void NumberProcesses(Hosts* hosts) {
  std::vector<Place*> processes;
  for (Place& worker : hosts->workers) {
    if (worker.stages.empty()) processes.push_back(&worker);
    for (Place& stage : worker.stages) processes.push_back(&stage);
  }
  const auto is_open = [](const Place& place) {
    return place.device.empty() || place.device == "cuda";
  };
  std::map<std::string, std::set<std::string>> named;
  for (const Place* place : processes) {
    if (is_open(*place)) continue;
    for (absl::string_view gpu : absl::StrSplit(place->device, ',')) {
      named[place->host].insert(std::string(gpu));
    }
  }
  std::map<std::string, int> next;
  for (Place* place : processes) {
    if (!is_open(*place)) continue;
    int& number = next[place->host];
    while (named[place->host].count(absl::StrCat("cuda:", number)) > 0) ++number;
    place->gpu_number = number++;
  }
}

absl::Status SplitIntoStages(int stages, Hosts* hosts) {
  auto held = std::make_shared<std::vector<FileDescriptor>>();
  for (Place& worker : hosts->workers) {
    for (int stage = 0; stage < stages; ++stage) {
      Place place;
      absl::StatusOr<FileDescriptor> holder = HoldLoopbackPort(&place.port);
      if (!holder.ok()) return holder.status();
      held->push_back(*std::move(holder));
      worker.stages.push_back(std::move(place));
    }
  }
  hosts->held_ports = std::move(held);
  return absl::OkStatus();
}

std::vector<std::string> StageAddresses(const Place& worker) {
  std::vector<std::string> addresses;
  for (const Place& stage : worker.stages) {
    addresses.push_back(
        absl::StrCat(stage.host.empty() ? "127.0.0.1" : stage.host, ":", stage.port));
  }
  return addresses;
}

bool IsLoopback(absl::string_view host) {
  return host.empty() || host == "localhost" || absl::StartsWith(host, "127.") || host == "::1" ||
         host == "[::1]";
}

}  // namespace torchps
