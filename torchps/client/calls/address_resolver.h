#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/security/certificate_files.h"
#include "torchps/transport/server_address.h"

namespace torchps {

// Finds the current addresses of a job's servers. Starts with the addresses in --servers. For a
// server that was passed to Miss(), it reads the file that --servers names for the server. It also
// asks the coordinator, where servers register (Coordinator.LocateServers). It switches to a new
// address only if a program listens there, so wrong or old entries are harmless. The Hello that the
// caller then sends verifies the server.
//
// Thread-safe. A separate thread does the lookups; it starts with the first Miss(). All clients of
// the same server list should share one resolver.
class AddressResolver {
 public:
  struct Options {
    // In server order; the coordinator is first. At least one.
    std::vector<AddressSource> servers;
    // The worker's certificates; null: no TLS.
    std::shared_ptr<CertificateFiles> certificates;
    // Minimum time between two lookups of a server.
    absl::Duration pause = absl::Seconds(1);
    // Timeout for the coordinator's answer, and for a connection to a new address.
    absl::Duration timeout = absl::Seconds(1);
  };

  explicit AddressResolver(Options options);
  ~AddressResolver();
  AddressResolver(const AddressResolver&) = delete;
  AddressResolver& operator=(const AddressResolver&) = delete;

  int servers() const { return static_cast<int>(options_.servers.size()); }

  // Returns the server's endpoint as currently known, with a null `book`.
  ServerEndpoint Find(int index) ABSL_LOCKS_EXCLUDED(mutex_);

  // Requests a lookup because server `index` does not answer at `address`. Does not block.
  void Miss(int index, const std::string& address) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    ServerEndpoint endpoint;
    absl::Duration looked_at = -absl::InfiniteDuration();
  };

  void Run();
  // Switches to another address of this server if a program listens there.
  void Resolve(int index) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the addresses from the file and the coordinator.
  std::vector<std::string> Candidates(int index) ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<std::string> AskCoordinator(int index) ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const SteadyClock clock_;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::set<int> missed_ ABSL_GUARDED_BY(mutex_);
  // The call in progress, cancelled by the destructor.
  grpc::ClientContext* asking_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

// Returns the current endpoints of all servers in `book`. Their `book` is set.
std::vector<ServerEndpoint> GetEndpoints(const std::shared_ptr<AddressResolver>& book);

// Returns the current endpoint from the endpoint's book; `endpoint` itself if the book is null.
ServerEndpoint GetLatest(const ServerEndpoint& endpoint);

// Returns the current address as HOST:PORT. Empty if the server is in this process or the address
// is not known yet.
std::string GetAddress(const ServerEndpoint& endpoint);

// Returns the new endpoint of a server that did not answer at `endpoint` for `silence`; nullopt if
// no new endpoint is known. Starts a lookup after one second of silence, or at once if the server
// has not written its address file yet.
std::optional<ServerEndpoint> MovedFrom(const ServerEndpoint& endpoint, absl::Duration silence);

}  // namespace torchps
