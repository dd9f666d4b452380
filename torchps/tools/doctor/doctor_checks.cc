#include "torchps/tools/doctor/doctor_checks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <netdb.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "torchps/data/image/image_folder.h"
#include "torchps/data/image/image_sets.h"
#include "torchps/data/table/csv.h"
#include "torchps/data/table/csv_classes.h"
#include "torchps/data/text/token_file.h"
#include "torchps/security/certificate_files.h"
#include "torchps/security/roles.h"
#include "torchps/tools/base/format.h"
#include "torchps/transport/shared_segment.h"

namespace torchps {
namespace {

using Level = Finding::Level;

constexpr int kConnectMs = 1000;
// Only checkpoints of small models fit into less space.
constexpr int64_t kLittleRoomBytes = int64_t{1} << 30;
// Certificates are newer than this. An earlier date means a wrong clock.
constexpr int64_t kYear2024 = 1704067200;

Finding Ok(std::string subject, std::string text) {
  return {Level::kOk, std::move(subject), std::move(text), ""};
}
Finding Problem(std::string subject, std::string text, std::string advice) {
  return {Level::kProblem, std::move(subject), std::move(text), std::move(advice)};
}

// Returns 0 if connected, otherwise errno.
int TryToConnect(const addrinfo& to) {
  const int fd = socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  const auto close_it = absl::MakeCleanup([fd] { close(fd); });
  if (connect(fd, to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd watched = {fd, POLLOUT, 0};
  if (poll(&watched, 1, kConnectMs) != 1) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

Finding DataFinding(const std::string& what, const absl::Status& status, int64_t samples) {
  if (status.ok()) {
    return Ok("data", absl::StrCat(what, ": ", WithThousands(samples), " samples, complete"));
  }
  return Problem(
      "data", std::string(status.message()),
      "each worker reads the data on its own machine: copy the data there, or set --data");
}

// Returns `folder`, or an error if an image cannot be decoded.
absl::StatusOr<ImageFolder> Decoded(const absl::StatusOr<ImageFolder>& folder,
                                    const ImagesSpec& spec) {
  if (!folder.ok()) return folder.status();
  const ImageSize size{spec.channels(), spec.height(), spec.width()};
  std::vector<uint8_t> planes(size.channels * size.height * size.width);
  for (int64_t i = 0; i < folder->size(); ++i) {
    const absl::Status loaded = LoadImage(*folder, i, size, planes.data());
    if (!loaded.ok()) return loaded;
  }
  return folder;
}

Finding TokensFinding(const absl::StatusOr<std::unique_ptr<TokenFile>>& file, int64_t vocabulary) {
  constexpr char kAdvice[] =
      "put train.bin and val.bin into --data or data.path, and set data.tokens.vocabulary above "
      "the largest token";
  if (!file.ok()) return Problem("data", std::string(file.status().message()), kAdvice);
  const absl::StatusOr<int32_t> largest = (*file)->Largest();
  if (!largest.ok()) return Problem("data", std::string(largest.status().message()), kAdvice);
  const std::string text = absl::StrCat((*file)->path(), ": ", WithThousands((*file)->size()),
                                        " tokens, the largest is ", *largest);
  if (vocabulary > 0 && *largest >= vocabulary) return Problem("data", text, kAdvice);
  return Ok("data", text);
}

}  // namespace

Finding CheckAddress(const std::string& address) {
  const std::string subject = absl::StrCat("address ", address);
  const size_t colon = address.rfind(':');
  absl::string_view name = absl::string_view(address).substr(0, colon);
  if (absl::ConsumePrefix(&name, "[")) absl::ConsumeSuffix(&name, "]");
  const std::string host(name);
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  int number = 0;
  if (host.empty() || !absl::SimpleAtoi(port, &number) || number < 1 || number > 65535) {
    return Problem(subject, "is not HOST:PORT", "write it as in alpha:7000");
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (failure != 0) {
    return Problem(subject, absl::StrCat("the name cannot be resolved: ", gai_strerror(failure)),
                   "every worker must be able to resolve the name: use the address, or add the "
                   "name to DNS or /etc/hosts");
  }
  const auto free_it = absl::MakeCleanup([found] { freeaddrinfo(found); });
  switch (const int error = TryToConnect(*found)) {
    case 0:
      return {
          Level::kWarning, subject, "something already listens there",
          "'psctl status' shows whether it is a torchps server; a new server needs another port"};
    case ECONNREFUSED:
      return Ok(subject, "the machine answers, but no process listens on that port yet");
    default:
      return Problem(subject, absl::StrCat("cannot be reached: ", std::strerror(error)),
                     "is the machine up, and does a firewall or a wrong network block it?");
  }
}

Finding CheckFreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto close_it = absl::MakeCleanup([fd] { close(fd); });
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd < 0 || bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(fd, 1) != 0) {
    return Problem("ports",
                   absl::StrCat("cannot listen on any port of 127.0.0.1: ", std::strerror(errno)),
                   "is the loopback up ('ip link set lo up')?");
  }
  return Ok("ports", "servers on this machine use free ports of 127.0.0.1");
}

Finding CheckDirectory(const std::string& dir) {
  const std::string subject = absl::StrCat("directory ", dir);
  std::error_code error;
  // Servers create the directory. Until then, checks the closest existing parent.
  std::filesystem::path there = std::filesystem::absolute(dir, error);
  while (!std::filesystem::exists(there, error) && there.has_relative_path()) {
    there = there.parent_path();
  }
  if (!std::filesystem::is_directory(there, error)) {
    return Problem(subject, absl::StrCat(there.string(), " is not a directory"),
                   "name another directory");
  }
  // Permission bits do not show a read-only disk, so this writes a file.
  std::string probe = (there / ".torchps-doctor-XXXXXX").string();
  const int fd = mkostemp(probe.data(), O_CLOEXEC);
  if (fd < 0) {
    return Problem(subject, absl::StrCat("cannot be written: ", std::strerror(errno)),
                   "give the servers' user write permission, or name another directory");
  }
  const bool synced = write(fd, "x", 1) == 1 && fsync(fd) == 0;
  const int failure = errno;
  close(fd);
  unlink(probe.c_str());
  if (!synced) {
    return Problem(
        subject,
        absl::StrCat("a file there cannot be written and synced: ", std::strerror(failure)),
        "is the disk full or broken?");
  }
  struct statvfs room = {};
  struct statfs kind = {};
  if (statvfs(there.c_str(), &room) != 0 || statfs(there.c_str(), &kind) != 0) {
    return Problem(subject, absl::StrCat("its file system does not answer: ", std::strerror(errno)),
                   "name another directory");
  }
  const auto bytes = static_cast<int64_t>(room.f_bavail) * static_cast<int64_t>(room.f_frsize);
  const std::string text = absl::StrCat(FormatBytes(static_cast<double>(bytes)), " free");
  if (kind.f_type == TMPFS_MAGIC) {
    return {Level::kWarning, subject, absl::StrCat(text, ", but this file system is in memory"),
            "files there do not survive a reboot: name a directory on a disk"};
  }
  if (bytes < kLittleRoomBytes) {
    return {Level::kWarning, subject, text,
            "checkpoints of a larger model will not fit; with durability.level LOG, the push log "
            "needs 256 MiB more, or twice the model"};
  }
  return Ok(subject, absl::StrCat("can be written, ", text));
}

std::vector<Finding> CheckData(const JobSpec& job) {
  const std::string& source = job.data().source();
  const std::string& path = job.data().path();
  if (source == "digits" || (source == "text" && path.empty())) {
    return {Ok("data", absl::StrCat(source, " are generated"))};
  }
  std::vector<Finding> findings;
  const auto look = [&](const std::string& what, const auto& read) {
    findings.push_back(DataFinding(what, read.status(), read.ok() ? read->size() : 0));
  };
  const bool tested = !job.training().has_evaluate() || job.training().evaluate();
  if (source == "idx") {
    look(path + ", to train on", ReadIdxDirectory(path, "train"));
    if (tested) look(path + ", to test on", ReadIdxDirectory(path, "t10k"));
  } else if (source == "cifar10") {
    look(path + ", to train on", ReadCifar10Train(path));
    if (tested) look(path + ", to test on", ReadCifar10Test(path));
  } else if (source == "csv") {
    const auto table = ReadCsv(path, GetColumns(job.data().csv()));
    findings.push_back(DataFinding(path, table.status(), table.ok() ? table->rows : 0));
  } else if (source == "images") {
    const auto train = ReadImageFolder(path + "/train");
    look(path + ", to train on", Decoded(train, job.data().images()));
    if (tested && train.ok()) {
      look(path + ", to test on", Decoded(ReadTestImageFolder(path), job.data().images()));
    }
  } else if (source == "tokens") {
    for (const char* name : {"train", "val"}) {
      if (!tested && name != std::string("train")) continue;
      const absl::StatusOr<std::unique_ptr<TokenFile>> file =
          TokenFile::Open(TokenPath(path, name), job.data().tokens().bits());
      findings.push_back(TokensFinding(file, job.data().tokens().vocabulary()));
    }
  } else if (source == "text") {
    std::error_code error;
    const uintmax_t bytes = std::filesystem::file_size(path, error);
    if (error || bytes == 0) {
      findings.push_back(Problem("data",
                                 absl::StrCat(path, error ? ": " + error.message() : " is empty"),
                                 "name a text file with --data"));
    } else {
      findings.push_back(
          Ok("data", absl::StrCat(path, ": ", FormatBytes(static_cast<double>(bytes)))));
    }
  } else {
    findings.push_back(
        {Level::kWarning, "data",
         absl::StrCat("'", source, "' is not built in, so only your own program can read it"),
         "the program checks the data when it starts"});
  }
  return findings;
}

uint64_t OpenFilesLimit() {
  rlimit limit = {};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

Finding CheckOpenFiles(uint64_t limit, int64_t connections) {
  // Each connection needs a socket and a shared memory segment. 64 covers the program's other
  // files.
  const int64_t needed = 2 * connections + 64;
  const std::string text =
      absl::StrCat("a process may open ", limit, " files, a server needs ", needed);
  if (limit < static_cast<uint64_t>(needed)) {
    return Problem("limits", text,
                   absl::StrCat("'ulimit -n ", 2 * needed, "' before the server starts"));
  }
  return Ok("limits", text);
}

Finding CheckCongestionControl(absl::string_view in_force) {
  if (in_force.empty())
    return Ok("network", "cannot read TCP's congestion control from the kernel");
  const std::string text = absl::StrCat("TCP's congestion control is ", in_force);
  if (in_force != "bbr") return Ok("network", text);
  return {Level::kWarning, "network",
          absl::StrCat(text, ", which paces packets: pushes and pulls are up to 20 % slower"),
          "'sysctl -w net.ipv4.tcp_congestion_control=cubic' as root, on servers and workers"};
}

std::string CongestionControl() {
  std::ifstream file("/proc/sys/net/ipv4/tcp_congestion_control");
  std::string name;
  file >> name;
  return name;
}

Finding CheckSharedMemory() {
  const auto segment = SharedSegment::Create("doctor", 2 * SharedSegment::kHeaderBytes);
  absl::Status status = segment.status();
  if (status.ok()) {
    status = SharedSegment::Open((*segment)->offer(), (*segment)->bytes()).status();
  }
  if (status.ok()) return Ok("shared memory", "works between processes of this user");
  return {Level::kWarning, "shared memory", std::string(status.message()),
          "payloads on one machine then use the network, which is slower but works"};
}

std::vector<Finding> CheckCertificates(const std::string& dir, absl::Time now) {
  constexpr absl::Duration kSoon = absl::Hours(7 * 24);
  std::vector<Finding> findings;
  absl::Status first;
  for (const Role role : {Role::kServer, Role::kWorker, Role::kOperator}) {
    const std::string place = CertificateSet::DirectoryFor(dir, role);
    const auto set = CertificateSet::Read(dir, role, now);
    // `dir` either has a subdirectory per role, or holds the certificates of one role.
    if (!set.ok()) {
      if (place != dir) {
        findings.push_back(Problem(absl::StrCat("certificates ", place),
                                   std::string(set.status().message()),
                                   "'psctl certs' makes new ones"));
      } else if (first.ok()) {
        first = set.status();
      }
      continue;
    }
    const absl::Time end = (*set)->not_after();
    const std::string text =
        absl::StrCat(ToUri((*set)->identity()), ", valid until ",
                     absl::FormatTime("%Y-%m-%d %H:%M UTC", end, absl::UTCTimeZone()));
    findings.push_back(end - now < kSoon
                           ? Finding{Level::kWarning, absl::StrCat("certificates ", place), text,
                                     "renew them: running processes load new files by themselves"}
                           : Ok(absl::StrCat("certificates ", place), text));
  }
  if (findings.empty()) {
    findings.push_back(Problem(absl::StrCat("certificates ", dir), std::string(first.message()),
                               "'psctl certs' makes them"));
  }
  return findings;
}

Finding CheckClock(int64_t seconds_since_1970) {
  const std::string date = absl::FormatTime(
      "%Y-%m-%d %H:%M UTC", absl::FromUnixSeconds(seconds_since_1970), absl::UTCTimeZone());
  if (seconds_since_1970 < kYear2024) {
    return Problem("clock", absl::StrCat("the date here is ", date),
                   "set the clock: certificates would not be valid yet");
  }
  return Ok(
      "clock",
      absl::StrCat(
          date,
          "; only certificates depend on it, because leases use each machine's steady clock"));
}

std::string FindingsText(const std::vector<Finding>& findings) {
  std::string text;
  int64_t counts[3] = {};
  for (const Finding& finding : findings) {
    ++counts[static_cast<int>(finding.level)];
    const char* const word = finding.level == Level::kOk        ? "ok      "
                             : finding.level == Level::kWarning ? "warning "
                                                                : "PROBLEM ";
    absl::StrAppend(&text, word, " ", finding.subject, ": ", finding.text, "\n");
    if (!finding.advice.empty()) absl::StrAppend(&text, "          -> ", finding.advice, "\n");
  }
  absl::StrAppend(&text, counts[0], " ok, ", Count(counts[1], "warning"), ", ",
                  Count(counts[2], "problem"), "\n");
  return text;
}

bool AnyProblem(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& f) { return f.level == Level::kProblem; });
}

}  // namespace torchps
