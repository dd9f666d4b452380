#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/common/log_line.h"
#include "torchps/common/process/file_descriptor.h"
#include "torchps/security/log_throttle.h"
#include "torchps/security/protocol_sniffer.h"
#include "torchps/server/rpc/handshake_limiter.h"

namespace torchps {

// Accepts a server's connections and inspects the first bytes before gRPC sees them. gRPC silently
// drops a TLS client of a plaintext server, a plaintext client of a TLS server, and a browser. The
// filter refuses them with one sentence that both sides can read. A connection costs one file
// descriptor while its protocol is undecided. The filter closes it after `patience`, or earlier if
// too many connections wait.
//
// Each TLS handshake occupies a descriptor for up to ten seconds before the peer is authenticated.
// So the filter hands a connection to gRPC only after the first TLS record is complete. It also
// limits the number of concurrent handshakes; further connections wait here. Some descriptors
// always stay free for the server.
//
// If a server listens on loopback without TLS, all users of the machine can reach it. The filter
// then asks the kernel for the user that owns the peer. It admits only root and the user that runs
// the server.
//
// Thread-safe. Runs one thread, which calls `admit` and `log`. Invariants: leaves `reserved_files`
// of the process's descriptors free; never runs more handshakes than `handshake_limiter` allows.
class ConnectionFilter {
 public:
  struct Options {
    // Host name or address, as in HOST:PORT. The filter listens on each address that the name
    // resolves to.
    std::string host = "127.0.0.1";
    int port = 0;
    // True if the server behind the filter uses TLS.
    bool tls = false;
    bool own_user_only = false;
    // Receives an admitted connection. The socket is nonblocking and still unread.
    std::function<void(FileDescriptor connection)> admit;
    LogLine log = IgnoreLine;
    // Limits for connections that are undecided or wait for a handshake: the time of each, and the
    // number of all. Above that number, the filter closes the oldest.
    absl::Duration patience = absl::Seconds(10);
    size_t max_waiting = 512;
    // Used only with `tls`.
    HandshakeLimiter::Limits handshake_limiter;
    // The filter accepts connections only while at least this many descriptors are free.
    // Checkpoints, push logs and connections to other servers need them.
    int64_t reserved_files = 64;
    const Clock* clock = nullptr;  // outlives the filter
  };

  // Binds and listens; connections are accepted after Open(). Returns ALREADY_EXISTS if the port is
  // in use, and UNAVAILABLE with the system's message if the host is not an address of this
  // machine.
  static absl::StatusOr<std::unique_ptr<ConnectionFilter>> Create(Options options);

  ~ConnectionFilter();

  int port() const { return port_; }

  // TLS handshakes in progress. The gRPC service reports their end.
  HandshakeLimiter& handshake_limiter() { return handshake_limiter_; }

  void Open();
  // Stops the thread and closes waiting connections. Idempotent.
  void Close();

 private:
  struct Peer {
    FileDescriptor connection;
    std::string address;  // for messages
    absl::Duration deadline;
    // The peer was refused. Further bytes are discarded so that the peer can read the refusal.
    bool leaving = false;
    // The first TLS record is complete; the peer waits until the handshake limiter allows another
    // handshake.
    bool waits = false;
  };
  // Keyed by a number that rises with each arrival. epoll events carry this number.
  using Peers = std::map<uint64_t, Peer>;

  explicit ConnectionFilter(Options options);

  absl::Status Listen();
  void Watch(int fd, uint32_t events, uint64_t number) const;
  void Serve();
  void Accept(int listener);
  void Receive(FileDescriptor connection, std::string address);
  // Handles new bytes from the peer; `ended` means end of stream.
  void Inspect(Peers::iterator peer, bool ended);
  void Admit(Peers::iterator peer);
  // Admits waiting peers while the handshake limiter allows more.
  void AdmitWaiting();
  // Returns true if a descriptor is available for another connection.
  bool HasFreeFile() const;
  // Returns the reason to refuse a connection that began with `bytes`; empty to admit it.
  std::string ReasonToRefuse(const Peer& peer, Protocol protocol, absl::string_view bytes) const;
  void Refuse(Peer& peer, Protocol protocol, const std::string& reason);
  void LogRefusal(const Peer& peer, const std::string& what);
  Peers::iterator Forget(Peers::iterator peer);
  // Closes the connections that reached the deadline. Returns the time until Serve() must check
  // again: until the next deadline, or less if a handshake or a pause may end before it.
  absl::Duration DismissLate();
  // Called if the process lacks descriptors or memory for another connection. Stops accepting for
  // at most kPause, and closes the oldest connection that gRPC does not have yet.
  void Pause();

  const Options options_;
  int port_ = 0;
  LogThrottle log_;
  HandshakeLimiter handshake_limiter_;
  std::vector<FileDescriptor> listeners_;
  FileDescriptor poll_;
  FileDescriptor wake_;  // eventfd that stops the thread

  // Used only by thread_.
  Peers peers_;
  uint64_t next_number_ = 0;
  size_t waiting_ = 0;  // number of peers with `waits` set
  bool paused_ = false;

  std::thread thread_;
};

}  // namespace torchps
