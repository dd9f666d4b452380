#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace torchps {

// A file whose contents are known beforehand.
struct RemoteFile {
  std::string name;  // below a mirror's URL, and in the directory it goes to
  int64_t bytes = 0;
  std::string sha256;  // 64 lower-case hexadecimal digits
};

struct DownloadOptions {
  // URLs that `name` is appended to (http, https), tried in order until one has the right file.
  std::vector<std::string> mirrors;
  // For a connection to come about. Default 10 s.
  absl::Duration connect_timeout = absl::Seconds(10);
  // For a file as a whole. Default 10 minutes.
  absl::Duration timeout = absl::Minutes(10);
  // Is told one line per file and failed attempt. Default: it is dropped.
  std::function<void(const std::string& line)> log = [](const std::string&) {};
  // Asked about once a second, also while nothing comes. True: gives up. Default: never.
  std::function<bool()> is_stopped = [] { return false; };
};

// Puts `files` into `directory`, which is made if need be. A file that is there already and has the
// right checksum stays as it is. A new one is received into memory and appears under its name only
// when it is whole, its checksum is right and it is on the disk. So any number of processes may do
// this at once, and one that is killed leaves no half file. On one machine they wait for each
// other, so that each file is fetched once. Honours the usual proxy variables.
//
// FAILED_PRECONDITION: another file has the name; it is left alone. DATA_LOSS: every mirror was
// asked and at least one sent something else. UNAVAILABLE: no mirror sent anything; says what each
// answered and what to do without a network. CANCELLED: stopped. INVALID_ARGUMENT: no mirror given.
// PERMISSION_DENIED, NOT_FOUND and others: as the system says of `directory`.
absl::Status DownloadFiles(const std::string& directory, const std::vector<RemoteFile>& files,
                           const DownloadOptions& options);

}  // namespace torchps
