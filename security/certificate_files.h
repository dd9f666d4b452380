#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "common/process/file_descriptor.h"
#include "security/certificate_set.h"

namespace torchps {

// The certificates of a process, loaded from a directory and reloaded when the files change.
// Invalid sets (half a rotation, a damaged file, an expired certificate) are not loaded: the last
// valid set stays in use, and a log line explains the reason.
//
// Thread-safe. An internal thread checks the files once a second.
class CertificateFiles {
 public:
  struct Options {
    std::string directory;  // see CertificateSet::Read
    Role role = Role::kWorker;
    // Receives a line when new certificates are loaded or rejected. Called on the internal thread.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    // Returns the current time, for validity checks.
    std::function<absl::Time()> now = [] { return absl::Now(); };
    absl::Duration look_every = absl::Seconds(1);
  };

  // Returns the errors of CertificateSet::Read, or UNAVAILABLE if an in-memory file cannot be
  // created.
  static absl::StatusOr<std::shared_ptr<CertificateFiles>> Open(Options options);

  ~CertificateFiles();

  std::shared_ptr<const CertificateSet> current() const;

  // Returns the path of an in-memory file with the current certificate and key, which only this
  // process can open. gRPC can reload certificates only from files, and this file always contains a
  // valid pair. Updates of the file are atomic.
  const std::string& published_path() const { return published_path_; }

  // Calls CertificateSet::CheckPeer on the current set with the current time.
  PeerVerdict CheckPeer(absl::string_view chain_pem, const absl::optional<std::string>& host) const;

  // Checks the files now, like the internal thread. Returns true if new certificates were loaded.
  bool Look();

 private:
  explicit CertificateFiles(Options options);

  absl::Status Publish(const CertificateSet& set);
  void Watch();
  // Returns a text that changes whenever a file changes.
  std::string Fingerprint() const;

  const Options options_;
  FileDescriptor published_;
  std::string published_path_;

  mutable Mutex mutex_;
  CondVar stop_changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const CertificateSet> current_ ABSL_GUARDED_BY(mutex_);

  // Lets only one thread check the files at a time.
  Mutex looking_ ABSL_ACQUIRED_BEFORE(mutex_);
  std::string seen_ ABSL_GUARDED_BY(looking_);
  // Fingerprint of the files that were rejected last. They are reported only if the next check
  // finds them unchanged, because the two files of a pair change one after the other.
  std::string refused_ ABSL_GUARDED_BY(looking_);
  bool has_complained_ ABSL_GUARDED_BY(looking_) = false;
  bool has_warned_ ABSL_GUARDED_BY(looking_) = false;

  std::thread watcher_;
};

}  // namespace torchps
