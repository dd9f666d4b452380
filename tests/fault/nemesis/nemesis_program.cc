#include "tests/fault/nemesis/nemesis_program.h"

#include <optional>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tests/fault/nemesis/nemesis_job.h"
#include "torchps/common/process/command_line.h"
#include "torchps/common/process/stop_signal.h"
#include "torchps/transport/grpc_process.h"

namespace torchps {

std::optional<NemesisArguments> ParseNemesisArguments(int argc, char** argv) {
  NemesisArguments arguments;
  if (argc < 5 || argc > 6 || !absl::SimpleAtoi(argv[2], &arguments.slot) ||
      !DurabilitySpec::Level_Parse(argv[4], &arguments.level)) {
    return std::nullopt;
  }
  arguments.servers = absl::StrSplit(argv[1], ',');
  arguments.journal = argv[3];
  if (argc == 6) arguments.how = argv[5];
  return arguments;
}

int RunNemesisProgram(
    const std::function<absl::Status(StopLatch* stop, std::atomic<bool>* is_broken)>& work,
    const std::function<void(const std::string& line)>& log) {
  StopSignal signals;
  signals.WatchStandardInput();
  PrepareGrpcProcess();
  StopLatch stop;
  std::atomic<bool> is_broken{false};
  absl::Status result;
  std::thread trainer([&] {
    result = work(&stop, &is_broken);
    signals.Request("finished");
  });
  stop.Stop(signals.Wait());
  trainer.join();
  if (!result.ok()) log(result.ToString());
  // `work` returns CANCELLED if it was stopped before it trained.
  if (absl::IsCancelled(result)) return static_cast<int>(ExitCode::kOk);
  if (is_broken) return NemesisJob::kBrokenLink;
  return static_cast<int>(ExitCodeFor(result));
}

}  // namespace torchps
