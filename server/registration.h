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
#include "common/mutex.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "rpc/server_address.h"
#include "server/job/server_identity.h"
#include "storage/file_system.h"

namespace torchps {

// Tells the coordinator where this server is (Coordinator.RegisterServer): as soon as it is known
// which server of which job it is, by a worker's greeting or by what its directory remembers of its
// life before, whenever that changes, and once in an interval, since the coordinator may have been
// restarted.
//
// The address is the one of the flag --advertise; else the one at which a worker has found this
// server; else that at which it listens. The coordinator is where the flag --coordinator says, else
// where a worker has told. A server 0 is its own.
//
// Thread-safe. A thread of its own makes the calls.
class Registration {
 public:
  struct Options {
    uint64_t server_incarnation = 0;
    // As the flags say; none: not said.
    std::optional<std::string> advertise;
    std::optional<AddressSource> coordinator;
    // Where this server listens, as others would reach it; empty: it does not.
    std::string listens;
    // Where it remembers its place; empty: nowhere.
    std::string directory;
    // Outlives this; needed with a directory.
    FileSystem* files = nullptr;
    // How this server, number `own_index`, reaches the coordinator.
    std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>(int own_index,
                                                                 const std::string& coordinator)>
        connect;
    // Takes sentences for the user.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    absl::Duration interval = absl::Seconds(5);
    // After a call that failed.
    absl::Duration pause = absl::Seconds(1);
    absl::Duration timeout = absl::Seconds(2);
  };

  explicit Registration(Options options);
  ~Registration() { Stop(); }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  // What workers have told. Does not wait; to be called as often as one likes.
  void Learn(const ServerIdentity& told) ABSL_LOCKS_EXCLUDED(mutex_);

  // Where the coordinator is, as far as is known; empty: it is not.
  std::string coordinator() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Breaks off what is under way, and ends the thread. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // With what the flags say in place of what was told. May read a file.
  ServerIdentity Settle(ServerIdentity told) const;
  // What the life before has left in the directory.
  std::optional<ServerIdentity> Recall() const;
  void Run();
  absl::Status Register(const ServerIdentity& place) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remember(const ServerIdentity& place);

  const Options options_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<ServerIdentity> told_ ABSL_GUARDED_BY(mutex_);
  // What is registered next, or was last.
  ServerIdentity place_ ABSL_GUARDED_BY(mutex_);
  bool is_new_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* calling_ ABSL_GUARDED_BY(mutex_) = nullptr;

  // Of the thread.
  std::string connected_to_;
  std::shared_ptr<grpc::Channel> channel_;
  std::string complaint_;
  std::optional<ServerIdentity> remembered_;

  std::thread thread_;
};

}  // namespace torchps
