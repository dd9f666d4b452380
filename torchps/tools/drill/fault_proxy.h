#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/common/mutex.h"
#include "torchps/tools/base/tcp.h"
#include "torchps/tools/run_plan/fault_plan.h"

namespace torchps {

// TCP proxy that simulates network faults. Forwards bytes from a free port of 127.0.0.1 to a
// target, and breaks connections periodically, after a number of bytes, or on request.
//
// Resets a broken connection in both directions, so either side may have sent data that the other
// never reads. Thread-safe. Runs on one thread.
class FaultProxy {
 public:
  struct Options {
    // "127.0.0.1:PORT".
    std::string target;
    // Resets open connections at multiples of this time after the start; infinite: never.
    absl::Duration reset_period = absl::InfiniteDuration();
    // Resets each connection after it has forwarded a random number of client bytes, uniform in [1,
    // this]; 0: never.
    uint64_t cut_within_bytes = 0;
    // Random seed for cut_within_bytes.
    uint64_t seed = 1;
  };

  // Starts the proxy. UNAVAILABLE: cannot listen on a port.
  static absl::StatusOr<std::unique_ptr<FaultProxy>> Start(Options options);

  // Resets open connections and stops.
  ~FaultProxy();

  const std::string& address() const { return address_; }

  // Each of the next three functions returns after the proxy's thread has carried out the request.

  // Resets the connections that are open now.
  void ResetAll();

  // While on, forwards no data and sends no errors: connections stay open, and new connections wait
  // in the kernel. Forwards the pending data when switched off.
  void SetBlackHole(bool on);

  // Stops injecting faults.
  void Heal();

  // Return the number of connections that this proxy has accepted, and of those that it has reset.
  uint64_t accepted() const;
  uint64_t resets() const;

 private:
  struct Pipe;
  struct Connection;
  // Requests from the owner.
  struct Orders {
    bool stop = false;
    bool healed = false;
    bool black_hole = false;
    bool reset = false;   // once
    uint64_t number = 0;  // number of requests so far
  };

  FaultProxy(Options options, FileDescriptor listener, std::string address, FileDescriptor wake);

  // Makes a request and blocks until the thread has carried it out.
  void Order(absl::FunctionRef<void(Orders&)> change);

  void Run();
  void Accept(const Orders& orders);
  // Forwards the data that can move without blocking. Returns false if the connection has ended.
  bool Move(Connection& connection);
  void ResetOpen();

  const Options options_;
  const FileDescriptor listener_;
  const std::string address_;
  const FileDescriptor wake_;  // eventfd

  // Used by the thread only.
  std::list<Connection> connections_;
  uint64_t random_;

  mutable Mutex mutex_;
  CondVar obeyed_changed_;
  Orders orders_ ABSL_GUARDED_BY(mutex_);
  uint64_t obeyed_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t accepted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t resets_ ABSL_GUARDED_BY(mutex_) = 0;

  std::thread thread_;
};

// Relays the connections between the workers and servers of a drill, so that the drill can break
// them: one proxy on the loopback per worker and server. Needs neither root nor firewall rules.
//
// Not thread-safe; each relay runs a thread.
class Relays {
 public:
  // Opens relays from `worker` to the servers at these addresses, in server order, and keeps
  // existing relays. Returns the value for the worker's environment
  // (torchps/client/calls/server_channel.h). UNAVAILABLE: cannot listen on a port.
  absl::StatusOr<std::string> Open(int worker, const std::vector<std::string>& servers);

  // Cut() blocks these links until Join() is called as often as Cut().
  void Cut(const std::vector<NetworkLink>& links);
  void Join(const std::vector<NetworkLink>& links);
  // Resets the open connections of these links.
  void Reset(const std::vector<NetworkLink>& links);

 private:
  struct Relay {
    std::unique_ptr<FaultProxy> proxy;
    int cuts = 0;
  };
  std::map<NetworkLink, Relay> relays_;
};

}  // namespace torchps
