// ps_server: one parameter server. The first worker's Hello brings the job. The first server in a
// job's --servers list also runs the coordinator.

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/version_info.h"
#include "torchps/common/clock.h"
#include "torchps/common/process/command_line.h"
#include "torchps/common/process/process_limits.h"
#include "torchps/common/process/stop_signal.h"
#include "torchps/security/credentials.h"
#include "torchps/server/server.h"
#include "torchps/storage/file_system.h"
#include "torchps/storage/slow_file_system.h"
#include "torchps/transport/grpc_process.h"

ABSL_FLAG(
    std::string, listen, "127.0.0.1:0",
    "HOST:PORT to listen on; port 0 picks a free one and prints it in the first line of output");
ABSL_FLAG(std::string, certs, "",
          "directory with a server's ca.pem, cert.pem and key.pem ('psctl certs' makes them): use "
          "TLS, and accept only peers with such certificates");
ABSL_FLAG(
    bool, insecure, false,
    "allow any host and any user of this machine without --certs: gradients and parameters are "
    "sent in plain text");
ABSL_FLAG(std::string, dir, "",
          "directory for checkpoints and the push log, from which a restarted server continues; "
          "empty: nothing is saved");
ABSL_FLAG(std::string, model_dir, "",
          "with --dir, on the first server: an existing directory for model.safetensors and "
          "best.safetensors; empty: --dir. durability.copies backs up only --dir");
ABSL_FLAG(std::string, advertise, "",
          "HOST:PORT at which workers and servers reach this server, if it differs from the listen "
          "address (a forwarded port)");
ABSL_FLAG(std::string, coordinator, "",
          "HOST:PORT of the job's first server, or file:PATH of its address file: this server "
          "registers its address there, also after it has moved; empty: the address that workers "
          "report");
ABSL_FLAG(std::string, address_file, "",
          "file to write this server's address to, in a directory that workers can read, for "
          "--servers=file:PATH");
ABSL_FLAG(bool, resume, false,
          "on the first server: continue the job whose state is in --dir, with new workers");
ABSL_FLAG(std::string, copies_at, "",
          "on the first server of a job with durability.copies, after its directory was lost: "
          "HOST:PORT of the second server, which keeps the backup");
ABSL_FLAG(int, threads, 0,
          "threads that receive and apply; 0: half of this machine's cores, at least 1");
ABSL_FLAG(double, slow, 1,
          "multiplies the time to apply a frame, to simulate a server that cannot keep up");
ABSL_FLAG(
    std::string, slow_disk, "",
    "MB[:SYNC]: limits reading and writing below --dir to MB a second, and delays a sync by SYNC, "
    "for example 20:100ms; MB:reads: limits only reading, so that only a restore is slow; "
    "simulates "
    "a slow disk");
ABSL_FLAG(bool, exit_with_parent, false, "stop when standard input ends: for launchers");

namespace {

// Enough for tens of GB, because servers write several hundred MB/s. An operator who does not want
// to wait can send SIGKILL.
constexpr absl::Duration kLastCheckpointTimeout = absl::Minutes(2);

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "ps_server: %s\n", std::string(status.message()).c_str());
  return static_cast<int>(torchps::ExitCodeFor(status));
}

}  // namespace

int main(int argc, char** argv) {
  torchps::SetProgramHelp("a parameter server of torchps; see README.md",
                          "gRPC " GRPC_CPP_VERSION_STRING);
  const absl::Status flags = torchps::CheckCommandLine(argc, argv);
  if (!flags.ok()) return Fail(flags);
  absl::ParseCommandLine(argc, argv);

  torchps::StopSignal
      stop;  // before other threads start, so that these inherit the blocked signals
  torchps::ReportOutOfMemory(
      "ps_server",
      "it ends; a restarted server restores what durability.level covers. Give it more memory, or "
      "the job more servers");
  torchps::RaiseOpenFileLimit();
  torchps::PrepareGrpcProcess();
  // Uses a single heap for all threads. Frames are allocated and freed on different threads, and
  // separate heaps would each keep their peak size.
  mallopt(M_ARENA_MAX, 1);
  torchps::SteadyClock clock;
  torchps::Server::Options options;
  options.listen = absl::GetFlag(FLAGS_listen);
  options.insecure = absl::GetFlag(FLAGS_insecure);
  options.log = [](const std::string& line) {
    std::fprintf(stderr, "ps_server: %s\n", line.c_str());
  };
  auto certificates =
      torchps::OpenCertificates(absl::GetFlag(FLAGS_certs), torchps::Role::kServer, options.log);
  if (!certificates.ok()) return Fail(certificates.status());
  options.certificates = *std::move(certificates);
  options.dir = absl::GetFlag(FLAGS_dir);
  options.model_dir = absl::GetFlag(FLAGS_model_dir);
  options.advertise = absl::GetFlag(FLAGS_advertise);
  options.coordinator = absl::GetFlag(FLAGS_coordinator);
  options.address_file = absl::GetFlag(FLAGS_address_file);
  options.resume = absl::GetFlag(FLAGS_resume);
  if (options.resume && options.dir.empty()) {
    return Fail(absl::InvalidArgumentError("--resume needs --dir=DIR, where the job's state is"));
  }
  options.copies_at = absl::GetFlag(FLAGS_copies_at);
  // Leaves half of the cores to the kernel, which copies as much as these threads do, and to
  // workers.
  options.threads = absl::GetFlag(FLAGS_threads);
  if (options.threads == 0) {
    options.threads = std::max(1, torchps::AvailableCores() / 2);
  }
  options.slow = absl::GetFlag(FLAGS_slow);
  const auto disk = torchps::MakePosixFileSystem();
  std::unique_ptr<torchps::FileSystem> slow_disk;
  if (const std::string text = absl::GetFlag(FLAGS_slow_disk); !text.empty()) {
    const auto slow = torchps::ParseSlowDisk(text);
    if (!slow.ok()) {
      return Fail(
          absl::InvalidArgumentError(absl::StrCat("--slow_disk=", slow.status().message())));
    }
    slow_disk = torchps::MakeSlowFileSystem(disk.get(), *slow);
    options.files = slow_disk.get();
  }
  options.clock = &clock;
  std::random_device random;
  options.seed = (uint64_t{random()} << 32) | random();
  options.on_shutdown_request = [&stop] { stop.Request("a peer asked for it"); };

  const auto server = torchps::Server::Start(options);
  if (!server.ok()) return Fail(server.status());
  if (absl::GetFlag(FLAGS_exit_with_parent)) stop.WatchStandardInput();
  std::printf("torchps_server ready address=%s pid=%d\n", (*server)->address().c_str(), getpid());
  std::fflush(stdout);

  const std::string reason = stop.Wait();
  const absl::Status kept = (*server)->TakeLastCheckpoint(kLastCheckpointTimeout);
  if (!kept.ok()) {
    std::fprintf(stderr, "ps_server: the last steps are in no checkpoint: %s\n",
                 std::string(kept.message()).c_str());
  }
  (*server)->Stop();
  std::printf("torchps_server stopped: %s\n", reason.c_str());
  return 0;
}
