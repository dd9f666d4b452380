#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "torchps/common/log_line.h"
#include "torchps/common/mutex.h"
#include "torchps/server/job/job_parts.h"
#include "torchps/storage/file_system.h"
#include "torchps/transport/server_address.h"

namespace torchps {

// Identity of a server within a job, saved in DIR/server-K.place. After a restart, the server can
// report the address to the coordinator before a worker connects.
struct SavedIdentity {
  ServerIdentity place;
  // The listen address at that time. If it differs after a restart, the server has moved.
  std::string listened;

  friend bool operator==(const SavedIdentity& a, const SavedIdentity& b) {
    return a.place == b.place && a.listened == b.listened;
  }
};

// Writes the identity, and creates `directory` if needed. Errors as FileSystem.
absl::Status SaveIdentity(FileSystem& files, const std::string& directory,
                          const SavedIdentity& place);

// Returns the identity saved in the directory. Returns nullopt if it is missing or unreadable, or
// if several servers share the directory, so that their identities are ambiguous.
std::optional<SavedIdentity> FindIdentity(FileSystem& files, const std::string& directory);

// Registers this server's address with the coordinator (Coordinator.RegisterServer). Registers as
// soon as a worker's Hello or the saved identity names the job and server index, and again when the
// address changes. Repeats the call periodically, because the coordinator may have been restarted.
//
// The address is the flag --advertise, else the address that workers use, else the listen address.
// The coordinator's address is the flag --coordinator, else the address that workers report. Server
// 0 registers with itself.
//
// Thread-safe. The calls run on a separate thread.
class Registration {
 public:
  struct Options {
    uint64_t server_incarnation = 0;
    // Flag values; nullopt if not set.
    std::optional<std::string> advertise;
    std::optional<AddressSource> coordinator;
    // The listen address as other machines reach it; empty if the server does not listen.
    std::string listens;
    // Directory for the saved identity; empty: the identity is not saved.
    std::string directory;
    // Outlives this object; required with `directory`.
    FileSystem* files = nullptr;
    // Connects server `own_index` to the coordinator.
    std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>(int own_index,
                                                                 const std::string& coordinator)>
        connect;
    // Returns true if this server needs a checkpoint, and may be called at any time. The next
    // registration then comes after `pause` and says so.
    std::function<bool()> wants_checkpoint = [] { return false; };
    // Receives sentences for the user.
    LogLine log = IgnoreLine;
    absl::Duration interval = absl::Seconds(5);
    // Delay after a failed call.
    absl::Duration pause = absl::Seconds(1);
    absl::Duration timeout = absl::Seconds(2);
  };

  explicit Registration(Options options);
  ~Registration() { Stop(); }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  // Sets the identity that workers report. Does not block; may be called often.
  void Learn(const ServerIdentity& told) ABSL_LOCKS_EXCLUDED(mutex_);

  // The coordinator's address; empty if unknown.
  std::string coordinator() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Cancels a call in progress and ends the thread. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Returns `told` with the flags' values applied. May read a file.
  ServerIdentity Settle(ServerIdentity told) const;
  // Returns the identity that the directory contains from before a restart.
  std::optional<ServerIdentity> Recall() const;
  void Run();
  // Blocks until the next registration is due, `wait` after the last one or earlier.
  void AwaitNext(absl::Duration wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Register(const ServerIdentity& place) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remember(const ServerIdentity& place);

  const Options options_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<ServerIdentity> told_ ABSL_GUARDED_BY(mutex_);
  // The identity that the thread registered last, or registers next.
  ServerIdentity identity_ ABSL_GUARDED_BY(mutex_);
  bool is_new_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* calling_ ABSL_GUARDED_BY(mutex_) = nullptr;

  // Used only by the thread.
  std::string connected_to_;
  std::shared_ptr<grpc::Channel> channel_;
  std::string complaint_;
  std::optional<ServerIdentity> remembered_;

  std::thread thread_;
};

}  // namespace torchps
