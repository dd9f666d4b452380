#include "torchps/data/download_mnist.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "torchps/storage/file_system.h"

namespace torchps {

absl::StatusOr<std::string> CacheFolder(
    const std::function<const char*(const char* name)>& environment) {
  const std::pair<const char*, const char*> places[] = {
      {"TORCHPS_CACHE", ""}, {"XDG_CACHE_HOME", "/torchps"}, {"HOME", "/.cache/torchps"}};
  for (const auto& [name, below] : places) {
    const char* const value = environment(name);
    // The XDG specification requires ignoring relative paths.
    if (value != nullptr && value[0] == '/') return absl::StrCat(value, below);
  }
  return absl::FailedPreconditionError(
      "there is no folder for downloads: neither TORCHPS_CACHE, XDG_CACHE_HOME nor HOME is an "
      "absolute path; set one, or name a directory with --data");
}

absl::StatusOr<std::string> CacheFolder() {
  return CacheFolder([](const char* name) { return std::getenv(name); });
}

absl::StatusOr<std::string> MnistFolder() {
  const absl::StatusOr<std::string> cache = CacheFolder();
  if (!cache.ok()) return cache.status();
  return absl::StrCat(*cache, "/mnist");
}

namespace {

constexpr int64_t kLargestFileBytes = int64_t{1} << 30;

std::string Sha256Of(absl::string_view data) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(data.data()), data.size(), digest);
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), sizeof(digest)});
}

// The bytes received so far: at most one byte more than expected, which shows that the file is too
// long.
struct Body {
  const size_t expected_bytes;
  std::string bytes;
};

size_t OnBody(char* data, size_t size, size_t count, void* to) {
  auto* const body = static_cast<Body*>(to);
  body->bytes.append(data, std::min(size * count, body->expected_bytes + 1 - body->bytes.size()));
  return body->bytes.size() <= body->expected_bytes ? size * count : 0;
}

// Returns non-zero to end the transfer.
int OnProgress(void* options, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const DownloadOptions*>(options)->is_stopped() ? 1 : 0;
}

// Downloads the file from one mirror, without retries. UNAVAILABLE: the mirror did not send a file.
// DATA_LOSS: it sent a different file. CANCELLED: stopped.
absl::StatusOr<std::string> Fetch(const std::string& url, const RemoteFile& wanted,
                                  const DownloadOptions& options) {
  Body body{static_cast<size_t>(wanted.bytes), ""};
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 &curl_easy_cleanup);
  if (!curl) return absl::InternalError("libcurl could not be started");
  char reason[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl.get(), CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl.get(), CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_MAXREDIRS, 5L);
  curl_easy_setopt(curl.get(), CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);  // no signals for timeouts: the process uses
                                                       // threads
  curl_easy_setopt(curl.get(), CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(absl::ToInt64Milliseconds(options.connect_timeout)));
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS,
                   static_cast<long>(absl::ToInt64Milliseconds(options.timeout)));
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, reason);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, &OnBody);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &body);
  curl_easy_setopt(curl.get(), CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl.get(), CURLOPT_XFERINFOFUNCTION, &OnProgress);
  curl_easy_setopt(curl.get(), CURLOPT_XFERINFODATA, &options);
  const CURLcode result = curl_easy_perform(curl.get());
  if (result == CURLE_ABORTED_BY_CALLBACK) return absl::CancelledError("the download was stopped");
  if (body.bytes.size() > body.expected_bytes) {
    return absl::DataLossError(
        absl::StrFormat("%s: expected %d bytes, got more", url, wanted.bytes));
  }
  if (result != CURLE_OK) {
    return absl::UnavailableError(
        absl::StrCat(url, ": ", reason[0] ? reason : curl_easy_strerror(result)));
  }
  const std::string sha256 = Sha256Of(body.bytes);
  if (body.bytes.size() != body.expected_bytes || sha256 != wanted.sha256) {
    return absl::DataLossError(
        absl::StrFormat("%s: expected %d bytes with SHA-256 %s, got %d bytes with %s", url,
                        wanted.bytes, wanted.sha256, body.bytes.size(), sha256));
  }
  return std::move(body.bytes);
}

// Writes the file under a process-specific name first, because other processes may write the same
// file.
absl::Status Publish(FileSystem& files, const std::string& path, absl::string_view contents) {
  const std::string own = absl::StrCat(path, ".", getpid());
  if (absl::Status status = WriteFileAtomically(files, own, contents); !status.ok()) return status;
  return files.Rename(own, path);
}

// Locks `directory` on this machine, so that workers that start together download each file once.
// If the file system does not support locks, each worker downloads separately; this is safe.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& directory)
      : fd_(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    while (fd_ >= 0 && flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~DirectoryLock() {
    if (fd_ >= 0) close(fd_);
  }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  const int fd_;
};

absl::Status DownloadFile(FileSystem& files, const std::string& directory, const RemoteFile& file,
                          const DownloadOptions& options) {
  const std::string path = absl::StrCat(directory, "/", file.name);
  const absl::StatusOr<std::string> present = ReadWholeFile(files, path, kLargestFileBytes);
  if (present.ok()) {
    const std::string sha256 = Sha256Of(*present);
    if (sha256 == file.sha256) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: expected no such file or one with SHA-256 %s, got one with %s (move it away, use "
        "another directory, or leave out --download)",
        path, file.sha256, sha256));
  }
  if (!absl::IsNotFound(present.status())) return present.status();

  std::vector<std::string> failures;
  bool wrong_contents = false;
  for (const std::string& mirror : options.mirrors) {
    const std::string url = absl::StrCat(mirror, absl::EndsWith(mirror, "/") ? "" : "/", file.name);
    const absl::StatusOr<std::string> fetched = Fetch(url, file, options);
    if (fetched.ok()) {
      if (absl::Status status = Publish(files, path, *fetched); !status.ok()) return status;
      options.log(absl::StrCat("fetched ", url, " to ", path));
      return absl::OkStatus();
    }
    if (absl::IsCancelled(fetched.status())) return fetched.status();
    wrong_contents = wrong_contents || absl::IsDataLoss(fetched.status());
    failures.emplace_back(fetched.status().message());
    options.log(absl::StrCat("could not fetch ", failures.back()));
  }
  const std::string message = absl::StrFormat(
      "no mirror sent %s (%s); without a network, copy the file into %s by hand and leave out "
      "--download, or set a reachable mirror with --mirrors=URL",
      file.name, absl::StrJoin(failures, "; "), directory);
  return wrong_contents ? absl::DataLossError(message) : absl::UnavailableError(message);
}

}  // namespace

absl::Status DownloadFiles(const std::string& directory, const std::vector<RemoteFile>& files,
                           const DownloadOptions& options) {
  if (options.mirrors.empty()) {
    return absl::InvalidArgumentError("--mirrors: expected at least one URL, got none");
  }
  const std::unique_ptr<FileSystem> disk = MakePosixFileSystem();
  if (absl::Status status = disk->CreateDirectories(directory); !status.ok()) return status;
  const DirectoryLock alone(directory);
  for (const RemoteFile& file : files) {
    if (absl::Status status = DownloadFile(*disk, directory, file, options); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

std::vector<RemoteFile> MnistFiles() {
  return {
      {"train-images-idx3-ubyte.gz", 9912422,
       "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
      {"train-labels-idx1-ubyte.gz", 28881,
       "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
      {"t10k-images-idx3-ubyte.gz", 1648877,
       "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
      {"t10k-labels-idx1-ubyte.gz", 4542,
       "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"},
  };
}

std::vector<std::string> MnistMirrors() {
  return {"https://ossci-datasets.s3.amazonaws.com/mnist/",
          "https://storage.googleapis.com/cvdf-datasets/mnist/"};
}

absl::Status DownloadMnist(const std::string& directory, DownloadOptions options) {
  if (options.mirrors.empty()) options.mirrors = MnistMirrors();
  return DownloadFiles(directory, MnistFiles(), options);
}

absl::StatusOr<std::string> DownloadForJob(const std::string& source, const std::string& path,
                                           DownloadOptions options) {
  if (source != "idx") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--download fetches MNIST, so it needs data.source \"idx\", not \"", source, "\""));
  }
  std::string directory = path;
  if (directory.empty()) {
    const absl::StatusOr<std::string> cached = MnistFolder();
    if (!cached.ok()) return cached.status();
    directory = *cached;
  }
  const absl::Status fetched = DownloadMnist(directory, std::move(options));
  if (!fetched.ok()) return fetched;
  return directory;
}

}  // namespace torchps
