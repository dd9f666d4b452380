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
#include "client/calls/server_channel.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "grpcpp/client_context.h"
#include "rpc/server_address.h"
#include "security/certificate_files.h"

namespace torchps {

// Where the servers of a job are: at first where --servers says, and from there wherever they go.
// A server that is missed is looked for in the file that --servers names for it, and at the
// coordinator, with whom servers register (Coordinator.LocateServers). The book turns to a new
// address only where something listens, so a word that is old or wrong costs nothing. Who it is
// that listens is found out by the caller's greeting, as ever.
//
// Thread-safe. The looking is done on a thread of its own, which begins with the first Miss(). One
// for each list of servers, shared by all that talk to them.
class AddressResolver {
 public:
  struct Options {
    // In the servers' order; the first is the coordinator's. At least one.
    std::vector<AddressSource> servers;
    // A worker's; null: no TLS.
    std::shared_ptr<CertificateFiles> certificates;
    // From one look for a server to the next.
    absl::Duration pause = absl::Seconds(1);
    // For the coordinator to answer, and for something to listen at a new address.
    absl::Duration timeout = absl::Seconds(1);
  };

  explicit AddressResolver(Options options);
  ~AddressResolver();
  AddressResolver(const AddressResolver&) = delete;
  AddressResolver& operator=(const AddressResolver&) = delete;

  int servers() const { return static_cast<int>(options_.servers.size()); }

  // The server as far as it is known now. Its `book` is null.
  ServerEndpoint Find(int index) ABSL_LOCKS_EXCLUDED(mutex_);

  // Server `index` does not answer at `address`: it is to be looked for. Does not wait.
  void Miss(int index, const std::string& address) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    ServerEndpoint endpoint;
    absl::Duration looked_at = -absl::InfiniteDuration();
  };

  void Run();
  // Turns to another address of this server if there is one at which something listens.
  void Look(int index) ABSL_LOCKS_EXCLUDED(mutex_);
  // What the file and the coordinator say.
  std::vector<std::string> Candidates(int index) ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<std::string> AskCoordinator(int index) ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const SteadyClock clock_;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::set<int> missed_ ABSL_GUARDED_BY(mutex_);
  // The call under way, to be cancelled at the end.
  grpc::ClientContext* asking_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

// The servers of `book`, each as it is known now, and with the book.
std::vector<ServerEndpoint> GetEndpoints(const std::shared_ptr<AddressResolver>& book);

// `endpoint` as its book knows it by now; itself where it has none.
ServerEndpoint GetLatest(const ServerEndpoint& endpoint);

// Where `endpoint` is found at this moment, as HOST:PORT; empty: inside this process, or not yet.
std::string GetAddress(const ServerEndpoint& endpoint);

// Where to go on with a server that has not answered at `endpoint` for `silence`; none: there. From
// a second of silence on it is looked for.
std::optional<ServerEndpoint> MovedFrom(const ServerEndpoint& endpoint, absl::Duration silence);

}  // namespace torchps
