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
#include "common/clock.h"
#include "common/process/file_descriptor.h"
#include "security/log_throttle.h"
#include "security/protocol_sniffer.h"
#include "server/rpc/handshake_limiter.h"

namespace torchps {

// Accepts a server's connections, and looks at the first bytes of each before gRPC does: gRPC sends
// a TLS client away from a plaintext server, a plaintext client from a TLS server and a browser
// from both without a word on either side. Here each of them costs a file descriptor until it has
// shown what it speaks, is refused in one sentence that both sides can read, and a connection that
// says nothing goes when its time is over or when too many wait.
//
// A TLS handshake costs its file for up to ten seconds, and nobody knows whose it is before it is
// over. So a connection is handed over once its first record is whole, and only so many handshakes
// are under way at a time; the next ones wait here. Whatever connections come, some files stay free
// for the server's own.
//
// Where a server listens on a loopback without TLS, every user of the machine can reach it. The
// filter then asks the kernel whose the connection is, and admits the user that the server runs as,
// and root.
//
// Thread-safe. Has one thread; `admit` and `log` are called on it.
// Invariants: of the files that this process may open the filter takes none of the last
// `reserved_files`; no more handshakes are under way than `handshakes` says.
class ConnectionFilter {
 public:
  struct Options {
    // A name or address, as in HOST:PORT; several where a name leads to several.
    std::string host = "127.0.0.1";
    int port = 0;
    // Whether what is behind the filter speaks TLS.
    bool tls = false;
    bool own_user_only = false;
    // Gets a connection that may go on, nonblocking, with nothing read from it yet.
    std::function<void(FileDescriptor connection)> admit;
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    // For how long a connection may be undecided or wait for its handshake, and how many may; the
    // oldest goes first.
    absl::Duration patience = absl::Seconds(10);
    size_t max_waiting = 512;
    // With `tls`.
    HandshakeLimiter::Limits handshake_limiter;
    // No connection is accepted while fewer files than this are free: a checkpoint, a push log and
    // the connections to other servers need some.
    int64_t reserved_files = 64;
    const Clock* clock = nullptr;  // outlives the filter
  };

  // Binds and listens; nothing is accepted before Open(). ALREADY_EXISTS: the port is taken.
  // UNAVAILABLE: the host is not this machine's, with the system's words.
  static absl::StatusOr<std::unique_ptr<ConnectionFilter>> Create(Options options);

  ~ConnectionFilter();

  int port() const { return port_; }

  // Those that `admit` has begun; whoever takes the calls tells it of them.
  HandshakeLimiter& handshake_limiter() { return handshake_limiter_; }

  void Open();
  // Ends the thread; what waits is closed. Idempotent.
  void Close();

 private:
  struct Peer {
    FileDescriptor connection;
    std::string address;  // for messages
    absl::Duration deadline;
    // Has been refused: what else it says is thrown away, so that it can read the refusal.
    bool leaving = false;
    // Has said what it has to, and goes on when there is room for its handshake.
    bool waits = false;
  };
  // By a number that rises with every arrival, and is what epoll tells.
  using Peers = std::map<uint64_t, Peer>;

  explicit ConnectionFilter(Options options);

  absl::Status Listen();
  void Watch(int fd, uint32_t events, uint64_t number) const;
  void Serve();
  void Accept(int listener);
  void Receive(FileDescriptor connection, std::string address);
  // It has said something more; `ended`: and will say nothing else.
  void Inspect(Peers::iterator peer, bool ended);
  void Admit(Peers::iterator peer);
  // Those whose handshake may begin.
  void AdmitWaiting();
  // Whether there is a file for one more connection.
  bool HasFreeFile() const;
  // What is wrong with a connection that began so; empty: nothing.
  std::string ReasonToRefuse(const Peer& peer, Protocol protocol, absl::string_view bytes) const;
  void Refuse(Peer& peer, Protocol protocol, const std::string& reason);
  void LogRefusal(const Peer& peer, const std::string& what);
  Peers::iterator Forget(Peers::iterator peer);
  // Ends the connections whose time is over; how long until the next one's is.
  absl::Duration DismissLate();
  // No file is free for another connection: lets some time pass.
  void Pause();

  const Options options_;
  int port_ = 0;
  LogThrottle log_;
  HandshakeLimiter handshake_limiter_;
  std::vector<FileDescriptor> listeners_;
  FileDescriptor poll_;
  FileDescriptor wake_;  // an eventfd: it is time to end

  // Of the thread.
  Peers peers_;
  uint64_t next_number_ = 0;
  size_t waiting_ = 0;  // of the peers
  bool paused_ = false;

  std::thread thread_;
};

}  // namespace torchps
