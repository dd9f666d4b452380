#include "data/download.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace torchps {
namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) {
    EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
  }

  void Add(const void* data, size_t bytes) { EVP_DigestUpdate(context_.get(), data, bytes); }

  std::string HexDigest() && {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &length);
    return absl::BytesToHexString({reinterpret_cast<const char*>(digest), length});
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  const std::unique_ptr<EVP_MD_CTX, Free> context_;
};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// NOT_FOUND if there is no such file.
absl::StatusOr<std::string> HashOfFile(const std::string& path) {
  const File file(std::fopen(path.c_str(), "rbe"));
  if (!file) return absl::ErrnoToStatus(errno, path);
  Sha256 hash;
  char buffer[1 << 16];
  size_t n;
  while ((n = std::fread(buffer, 1, sizeof(buffer), file.get())) > 0) hash.Add(buffer, n);
  if (std::ferror(file.get())) return absl::ErrnoToStatus(errno, path);
  return std::move(hash).HexDigest();
}

// A file that is being received: under a name of its own until Publish, gone if never published.
class IncomingFile {
 public:
  IncomingFile(const std::string& directory, const RemoteFile& wanted)
      : directory_(directory),
        wanted_(wanted),
        temporary_(absl::StrCat(directory, "/.", wanted.name, ".XXXXXX")) {
    const int fd = mkostemp(temporary_.data(), O_CLOEXEC);
    if (fd >= 0) file_.reset(fdopen(fd, "wb"));
    if (!file_) status_ = absl::ErrnoToStatus(errno, directory);
  }
  ~IncomingFile() {
    if (!published_) unlink(temporary_.c_str());
  }
  IncomingFile(const IncomingFile&) = delete;
  IncomingFile& operator=(const IncomingFile&) = delete;

  // What the file system said to the last call that failed.
  const absl::Status& status() const { return status_; }
  bool too_long() const { return received_ > wanted_.bytes; }

  // False if the transfer should stop: too long already, or the disk is full.
  bool Write(const char* data, size_t bytes) {
    received_ += bytes;
    if (too_long()) return false;
    hash_.Add(data, bytes);
    if (std::fwrite(data, 1, bytes, file_.get()) == bytes) return true;
    status_ = absl::ErrnoToStatus(errno, temporary_);
    return false;
  }

  // DATA_LOSS: what came is not what was wanted.
  absl::Status Publish() {
    const std::string sha256 = std::move(hash_).HexDigest();
    if (received_ != wanted_.bytes || sha256 != wanted_.sha256) {
      return absl::DataLossError(
          absl::StrFormat("expected %d bytes with SHA-256 %s, got %d bytes with %s", wanted_.bytes,
                          wanted_.sha256, received_, sha256));
    }
    const std::string path = absl::StrCat(directory_, "/", wanted_.name);
    if (std::fflush(file_.get()) != 0 || fchmod(fileno(file_.get()), 0644) != 0 ||
        fsync(fileno(file_.get())) != 0 || rename(temporary_.c_str(), path.c_str()) != 0) {
      status_ = absl::ErrnoToStatus(errno, path);
      return status_;
    }
    published_ = true;
    return absl::OkStatus();
  }

 private:
  const std::string directory_;
  const RemoteFile& wanted_;
  std::string temporary_;
  File file_;
  absl::Status status_;
  Sha256 hash_;
  int64_t received_ = 0;
  bool published_ = false;
};

size_t OnBody(char* data, size_t size, size_t count, void* file) {
  return static_cast<IncomingFile*>(file)->Write(data, size * count) ? size * count : 0;
}

// One attempt at one mirror. DATA_LOSS and UNAVAILABLE speak of the mirror and another may be
// tried, any other error of this machine.
absl::Status Fetch(const std::string& url, const std::string& directory, const RemoteFile& wanted,
                   const DownloadOptions& options) {
  IncomingFile file(directory, wanted);
  if (!file.status().ok()) return file.status();
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
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);  // timeouts without signals: we have threads
  curl_easy_setopt(curl.get(), CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(absl::ToInt64Milliseconds(options.connect_timeout)));
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS,
                   static_cast<long>(absl::ToInt64Milliseconds(options.timeout)));
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, reason);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, &OnBody);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &file);
  const CURLcode result = curl_easy_perform(curl.get());
  if (!file.status().ok()) return file.status();
  if (file.too_long()) {
    return absl::DataLossError(
        absl::StrFormat("%s: expected %d bytes, got more", url, wanted.bytes));
  }
  if (result != CURLE_OK) {
    return absl::UnavailableError(
        absl::StrCat(url, ": ", reason[0] ? reason : curl_easy_strerror(result)));
  }
  absl::Status published = file.Publish();
  if (absl::IsDataLoss(published)) {
    return absl::DataLossError(absl::StrCat(url, ": ", published.message()));
  }
  return published;
}

absl::Status DownloadFile(const std::string& directory, const RemoteFile& file,
                          const DownloadOptions& options) {
  const std::string path = absl::StrCat(directory, "/", file.name);
  const absl::StatusOr<std::string> present = HashOfFile(path);
  if (present.ok() && *present == file.sha256) return absl::OkStatus();
  if (present.ok()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: expected no such file or one with SHA-256 %s, got one with %s (move it away, name "
        "another directory, or do without the download)",
        path, file.sha256, *present));
  }
  if (!absl::IsNotFound(present.status())) return present.status();

  std::vector<std::string> failures;
  bool wrong_contents = false;
  for (const std::string& mirror : options.mirrors) {
    const std::string url = absl::StrCat(mirror, absl::EndsWith(mirror, "/") ? "" : "/", file.name);
    const absl::Status fetched = Fetch(url, directory, file, options);
    if (fetched.ok()) {
      options.log(absl::StrCat("fetched ", url, " to ", path));
      return absl::OkStatus();
    }
    if (!absl::IsDataLoss(fetched) && !absl::IsUnavailable(fetched)) return fetched;
    wrong_contents = wrong_contents || absl::IsDataLoss(fetched);
    failures.emplace_back(fetched.message());
    options.log(absl::StrCat("could not fetch ", failures.back()));
  }
  const std::string message = absl::StrFormat(
      "no mirror gave %s (%s); where there is no network, copy the file into %s by hand and leave "
      "out --download, or name a mirror that can be reached with --mirror=URL",
      file.name, absl::StrJoin(failures, "; "), directory);
  return wrong_contents ? absl::DataLossError(message) : absl::UnavailableError(message);
}

}  // namespace

absl::Status DownloadFiles(const std::string& directory, const std::vector<RemoteFile>& files,
                           const DownloadOptions& options) {
  if (options.mirrors.empty()) {
    return absl::InvalidArgumentError("--mirror: expected at least one URL, got none");
  }
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return absl::ErrnoToStatus(error.value(), directory);
  for (const RemoteFile& file : files) {
    if (absl::Status status = DownloadFile(directory, file, options); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace torchps
