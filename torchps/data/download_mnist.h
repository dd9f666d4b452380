#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace torchps {

// Returns the folder for downloaded files, shared by all jobs of this user: $TORCHPS_CACHE; else
// $XDG_CACHE_HOME/torchps; else ~/.cache/torchps. `environment` is std::getenv, except in tests.
//
// FAILED_PRECONDITION: TORCHPS_CACHE, XDG_CACHE_HOME and HOME are all unset or not absolute paths.
absl::StatusOr<std::string> CacheFolder(
    const std::function<const char*(const char* name)>& environment);
absl::StatusOr<std::string> CacheFolder();

// Returns MNIST's folder in the cache, which may not exist. Returns CacheFolder()'s errors.
absl::StatusOr<std::string> MnistFolder();

// A file with known contents.
struct RemoteFile {
  std::string name;  // appended to the mirror's URL, and the name in the directory
  int64_t bytes = 0;
  std::string sha256;  // 64 lower-case hexadecimal digits
};

struct DownloadOptions {
  // Base URLs (http, https), tried in order until a mirror sends the right file.
  std::vector<std::string> mirrors;
  // Timeout for the connection. Default 10 s.
  absl::Duration connect_timeout = absl::Seconds(10);
  // Timeout for a whole file. Default 10 minutes.
  absl::Duration timeout = absl::Minutes(10);
  // Receives one line per file and per failed attempt. Ignored by default.
  std::function<void(const std::string& line)> log = [](const std::string&) {};
  // Called about once a second, also during stalls. The download is cancelled if it returns true.
  // By default it is never cancelled.
  std::function<bool()> is_stopped = [] { return false; };
};

// Downloads `files` into `directory`, which is created if necessary. Keeps existing files with the
// right checksum. Receives a new file in memory, and creates it only after checking the checksum
// and syncing it. So several processes may call this concurrently, and a killed process does not
// leave a partial file. Processes on one machine take turns, so each file is downloaded once.
// Honors the usual proxy variables.
//
// FAILED_PRECONDITION: a different file with that name exists; it is not changed. DATA_LOSS: all
// mirrors failed, and at least one sent a different file. UNAVAILABLE: the mirrors did not send a
// file; the message contains each mirror's error, and how to continue without a network. CANCELLED:
// stopped. INVALID_ARGUMENT: `mirrors` is empty. PERMISSION_DENIED, NOT_FOUND and others: system
// errors for `directory`.
absl::Status DownloadFiles(const std::string& directory, const std::vector<RemoteFile>& files,
                           const DownloadOptions& options);

// Returns the four files of MNIST (Y. LeCun, C. Cortes, C. Burges) as first published, in gzip
// format.
std::vector<RemoteFile> MnistFiles();

// Returns long-lived public mirrors of MNIST: PyTorch's and TensorFlow's.
std::vector<std::string> MnistMirrors();

// Downloads MNIST into `directory`, for data.source "idx". If `options.mirrors` is empty, uses
// MnistMirrors(). Returns DownloadFiles's errors.
absl::Status DownloadMnist(const std::string& directory, DownloadOptions options);

// Implements --download for a job with data.source `source`: downloads MNIST into `path` (--data or
// data.path), or into mnist/ in the cache folder if `path` is empty. Returns the directory.
// INVALID_ARGUMENT: the source does not support downloads. Also returns the errors of CacheFolder
// and DownloadFiles.
absl::StatusOr<std::string> DownloadForJob(const std::string& source, const std::string& path,
                                           DownloadOptions options);

}  // namespace torchps
