// ps_server: one parameter server. It learns the job from the first worker that says Hello; the
// first server of a job's --servers list is its coordinator too.

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
#include "common/clock.h"
#include "common/process/available_cores.h"
#include "common/process/command_line.h"
#include "common/process/exit_codes.h"
#include "common/process/open_files.h"
#include "common/process/out_of_memory.h"
#include "common/process/stop_signal.h"
#include "rpc/grpc_process.h"
#include "security/credentials.h"
#include "server/server.h"
#include "storage/file_system.h"
#include "storage/slow_file_system.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:0",
          "HOST:PORT to listen on; port 0 takes a free one, which the first line of output tells");
ABSL_FLAG(
    std::string, certs, "",
    "directory with ca.pem, cert.pem and key.pem of a server ('psctl certs' makes them): speak "
    "TLS, only with those who have such certificates too");
ABSL_FLAG(
    bool, insecure, false,
    "permit a host beyond loopback without --certs, and every user of this machine: gradients "
    "and parameters travel in the clear");
ABSL_FLAG(std::string, dir, "",
          "directory for checkpoints and the push log, from which a server that is started again "
          "goes on; empty: nothing is kept");
ABSL_FLAG(std::string, model_dir, "",
          "with --dir, on the first server: an existing directory for model.safetensors and "
          "best.safetensors; empty: --dir. durability.copies copies --dir alone");
ABSL_FLAG(
    std::string, advertise, "",
    "HOST:PORT at which workers and servers reach this one, where that is another address than "
    "it listens on (a forwarded port)");
ABSL_FLAG(std::string, coordinator, "",
          "HOST:PORT of the job's first server, or file:PATH of its address file: where this one "
          "tells its address, also after it has moved; empty: where workers say it is");
ABSL_FLAG(std::string, address_file, "",
          "file to write this server's address to, in a directory that workers see: "
          "--servers=file:PATH finds it there, wherever it is started");
ABSL_FLAG(bool, resume, false,
          "the first server: the job whose state is in --dir goes on with other workers");
ABSL_FLAG(std::string, copies_at, "",
          "the first server of a job with durability.copies, whose directory is lost: HOST:PORT of "
          "the second one, which has copies of what was in it");
ABSL_FLAG(int, threads, 0,
          "threads that receive and apply; 0: half of this machine's cores, at least 1");
ABSL_FLAG(double, slow, 1,
          "applying takes so many times as long, to see a server that cannot keep up");
ABSL_FLAG(
    std::string, slow_disk, "",
    "MB[:SYNC]: reading and writing below --dir takes place at so many MB a second, and a sync "
    "takes SYNC, as 20:100ms; MB:reads: only reading does, so that only coming back is slow; to "
    "see a slow disk");
ABSL_FLAG(bool, exit_with_parent, false, "stop when standard input ends: for launchers");

namespace {

// A server writes some hundred MB in a second; an operator who cannot wait so long sends SIGKILL.
constexpr absl::Duration kLastCheckpointTimeout = absl::Minutes(2);

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "ps_server: %s\n", std::string(status.message()).c_str());
  return static_cast<int>(torchps::ExitCodeFor(status));
}

}  // namespace

int main(int argc, char** argv) {
  torchps::SetProgramHelp("a parameter server of torchps; see README.md");
  const absl::Status flags = torchps::CheckCommandLine(argc, argv);
  if (!flags.ok()) return Fail(flags);
  absl::ParseCommandLine(argc, argv);

  torchps::StopSignal stop;  // before any thread, so that all of them leave the signals to it
  torchps::SayWhenOutOfMemory(
      "ps_server",
      "it ends, and whoever starts it again finds what was acknowledged as the job's durability "
      "keeps it; give it more memory, or the job more servers");
  torchps::RaiseOpenFileLimit();
  torchps::PrepareGrpcProcess();
  // One heap for all threads: frames are taken on one thread and freed on another, and a heap per
  // thread would each keep the most that it ever held.
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
  // The other half is the kernel's, which copies as much as the threads do, and the workers'.
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
