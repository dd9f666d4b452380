#include "security/certificate_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace torchps {
namespace {

// Remaining validity at which the operator is warned.
constexpr absl::Duration kWarnBefore = absl::Hours(72);

}  // namespace

CertificateFiles::CertificateFiles(Options options) : options_(std::move(options)) {}

absl::StatusOr<std::shared_ptr<CertificateFiles>> CertificateFiles::Open(Options options) {
  auto files = absl::WrapUnique(new CertificateFiles(std::move(options)));
  const absl::StatusOr<std::shared_ptr<const CertificateSet>> set =
      CertificateSet::Read(files->options_.directory, files->options_.role, files->options_.now());
  if (!set.ok()) return set.status();
  {
    MutexLock looking(&files->looking_);
    files->seen_ = files->Fingerprint();
  }
  if (absl::Status status = files->Publish(**set); !status.ok()) return status;
  {
    MutexLock lock(&files->mutex_);
    files->current_ = *set;
  }
  files->watcher_ = std::thread([raw = files.get()] { raw->Watch(); });
  return std::shared_ptr<CertificateFiles>(std::move(files));
}

CertificateFiles::~CertificateFiles() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    stop_changed_.SignalAll();
  }
  if (watcher_.joinable()) watcher_.join();
}

std::shared_ptr<const CertificateSet> CertificateFiles::current() const {
  MutexLock lock(&mutex_);
  return current_;
}

PeerVerdict CertificateFiles::CheckPeer(absl::string_view chain_pem,
                                        const absl::optional<std::string>& host) const {
  return current()->CheckPeer(chain_pem, host, options_.now());
}

absl::Status CertificateFiles::Publish(const CertificateSet& set) {
  const auto failed = [] {
    return absl::UnavailableError(
        absl::StrCat("cannot hold the certificate in memory: ", std::strerror(errno)));
  };
  FileDescriptor file(memfd_create("torchps-certificate", MFD_CLOEXEC));
  if (file.get() < 0 || fchmod(file.get(), 0600) != 0) return failed();
  const std::string contents = absl::StrCat(set.key_pem(), "\n", set.certificate_pem());
  if (write(file.get(), contents.data(), contents.size()) !=
      static_cast<ssize_t>(contents.size())) {
    return failed();
  }
  if (published_.get() < 0) {
    published_ = std::move(file);
    published_path_ = absl::StrCat("/proc/self/fd/", published_.get());
    return absl::OkStatus();
  }
  // Atomically redirects the published path to the new contents.
  if (dup3(file.get(), published_.get(), O_CLOEXEC) < 0) return failed();
  return absl::OkStatus();
}

std::string CertificateFiles::Fingerprint() const {
  const std::string folder = CertificateSet::DirectoryFor(options_.directory, options_.role);
  std::string fingerprint;
  for (const char* name : {kAuthorityFile, kCertificateFile, kKeyFile}) {
    struct stat status {};
    if (stat(absl::StrCat(folder, "/", name).c_str(), &status) != 0) status = {};
    absl::StrAppend(&fingerprint, status.st_ino, " ", status.st_size, " ", status.st_mtim.tv_sec,
                    " ", status.st_mtim.tv_nsec, " ", status.st_mode, "\n");
  }
  return fingerprint;
}

bool CertificateFiles::Look() {
  MutexLock looking(&looking_);
  std::string fingerprint = Fingerprint();
  if (fingerprint == seen_) {
    const absl::Duration left = current()->not_after() - options_.now();
    if (!has_warned_ && left < kWarnBefore) {
      has_warned_ = true;
      options_.log(absl::StrCat("the certificate ", ToUri(current()->identity()),
                                left <= absl::ZeroDuration() ? " has expired" : " expires", " at ",
                                absl::FormatTime(current()->not_after()),
                                "; create new ones with 'psctl certs', no restart is needed"));
    }
    return false;
  }
  const absl::StatusOr<std::shared_ptr<const CertificateSet>> set =
      CertificateSet::Read(options_.directory, options_.role, options_.now());
  absl::Status status = set.status();
  if (status.ok() && (*set)->identity().job != current()->identity().job) {
    status =
        absl::FailedPreconditionError(absl::StrCat("they belong to job '", (*set)->identity().job,
                                                   "', not '", current()->identity().job, "'"));
  }
  if (status.ok()) status = Publish(**set);
  if (!status.ok()) {
    const bool again = refused_ == fingerprint;
    if (again && !has_complained_) {
      options_.log(absl::StrCat("keeps its certificate because the new files cannot be used: ",
                                status.message()));
    }
    has_complained_ = again;
    refused_ = std::move(fingerprint);
    return false;
  }
  seen_ = std::move(fingerprint);
  refused_.clear();
  has_complained_ = false;
  has_warned_ = false;
  {
    MutexLock lock(&mutex_);
    current_ = *set;
  }
  options_.log(absl::StrCat("now uses the new certificate ", ToUri((*set)->identity()),
                            ", valid until ", absl::FormatTime((*set)->not_after())));
  return true;
}

void CertificateFiles::Watch() {
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (!stop_) stop_changed_.WaitFor(&mutex_, options_.look_every);
      if (stop_) return;
    }
    Look();
  }
}

}  // namespace torchps
