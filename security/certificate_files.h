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

// A process's certificates as they lie in a directory, read anew when the files change. What is
// not whole and valid (half a rotation, a damaged file, an expired certificate) is not taken: the
// last good ones stay in use, and one sentence says why.
//
// Thread-safe. Has a thread of its own that looks at the files once a second.
class CertificateFiles {
 public:
  struct Options {
    std::string directory;  // as for CertificateSet::Read
    Role role = Role::kWorker;
    // Gets a line when new ones are taken or refused. Called on the thread that looks.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    // What time it is, for validity.
    std::function<absl::Time()> now = [] { return absl::Now(); };
    absl::Duration look_every = absl::Seconds(1);
  };

  // Errors are CertificateSet::Read's; UNAVAILABLE: no memory file can be made.
  static absl::StatusOr<std::shared_ptr<CertificateFiles>> Open(Options options);

  ~CertificateFiles();

  std::shared_ptr<const CertificateSet> current() const;

  // The certificate and the key in use, one behind the other in a file that only this process can
  // open: gRPC takes certificates that change from files only, and shall see none but good ones.
  // The file changes as a whole.
  const std::string& published_path() const { return published_path_; }

  // CertificateSet::CheckPeer of the ones in use, now.
  PeerVerdict CheckPeer(absl::string_view chain_pem, const absl::optional<std::string>& host) const;

  // Looks at the files at once, as the thread does. True: new ones were taken.
  bool Look();

 private:
  explicit CertificateFiles(Options options);

  absl::Status Publish(const CertificateSet& set);
  void Watch();
  // Changes whenever one of the files does.
  std::string Fingerprint() const;

  const Options options_;
  FileDescriptor published_;
  std::string published_path_;

  mutable Mutex mutex_;
  CondVar stop_changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const CertificateSet> current_ ABSL_GUARDED_BY(mutex_);

  // Only one thread looks at a time.
  Mutex looking_ ABSL_ACQUIRED_BEFORE(mutex_);
  std::string seen_ ABSL_GUARDED_BY(looking_);
  // Of the files that were refused last; said when they are still the same at the next look, for
  // the two files of a pair change one after the other.
  std::string refused_ ABSL_GUARDED_BY(looking_);
  bool has_complained_ ABSL_GUARDED_BY(looking_) = false;
  bool has_warned_ ABSL_GUARDED_BY(looking_) = false;

  std::thread watcher_;
};

}  // namespace torchps
