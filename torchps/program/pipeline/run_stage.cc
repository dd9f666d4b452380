#include "torchps/program/pipeline/run_stage.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/common/process/process_limits.h"
#include "torchps/program/pipeline/member_exchange.h"
#include "torchps/server/rpc/listening_sockets.h"
#include "torchps/worker/pipeline/run_member.h"
#include "torchps/worker/stages/stages.h"

namespace torchps {
namespace {

// Returns the memory for messages that wait for use: a quarter of this process's memory, and enough
// for a message of the largest size. The exact need is unknown, because the model determines the
// size of an activation. At most 4 test batches per stage wait
// (torchps/worker/pipeline/stage_work.cc).
int64_t MailboxBytes() {
  return std::max(int64_t{2} * kMaxParcelBytes, FindMemoryLimit().bytes / 4);
}

// Returns the address to listen on for clients that use `address`. For addresses outside loopback,
// that is every interface, because a host's name often resolves to loopback on that host (Debian's
// 127.0.1.1).
absl::StatusOr<std::string> ListenAt(const std::string& address) {
  const absl::StatusOr<ListenAddress> parsed = ParseListenAddress(address);
  if (!parsed.ok()) return parsed.status();
  return parsed->is_loopback ? address : EveryInterface(*parsed);
}

}  // namespace

absl::Status RunStage(const MemberTask& task, WorkerOptions options) {
  MemberExchange::Options exchange;
  exchange.stage = options.stage;
  exchange.stages = static_cast<int>(options.replica.size());
  if (options.stage >= exchange.stages) {
    return absl::InvalidArgumentError(
        absl::StrCat("--stage is ", options.stage, ", but --replica lists ", exchange.stages,
                     " processes; expected one for each stage, from 0"));
  }
  const absl::StatusOr<std::string> listen =
      ListenAt(options.replica[static_cast<size_t>(options.stage)]);
  if (!listen.ok()) return listen.status();
  exchange.listen = *listen;
  exchange.certificates = options.servers.front().certificates;
  exchange.lease = absl::Seconds(options.job.membership().lease_seconds());
  exchange.mailbox_bytes = MailboxBytes();
  exchange.patience = options.patience;
  exchange.log = options.log;
  exchange.clock = options.clock;
  exchange.stop = options.stop;
  const absl::StatusOr<std::unique_ptr<MemberExchange>> listening =
      MemberExchange::Listen(std::move(exchange));
  if (!listening.ok()) return listening.status();
  (*listening)->Connect(options.replica);
  MemberOptions member;
  member.exchange = listening->get();
  return RunMember(task, std::move(options), member);
}

absl::StatusOr<MemberTask> GetStage(const Task& task, const WorkerOptions& options) {
  const auto* const stages = dynamic_cast<const StagesImpl*>(&task.module());
  if (stages == nullptr || stages->stages().size() != options.replica.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--replica lists ", options.replica.size(), " processes, but the module ",
        stages == nullptr ? std::string("does not have stages; make it a torchps::Stages")
                          : absl::StrCat("has ", stages->stages().size(), " stages")));
  }
  if (options.stage >= static_cast<int>(options.replica.size())) {
    return absl::InvalidArgumentError(absl::StrCat("--stage is ", options.stage,
                                                   ", but --replica lists ", options.replica.size(),
                                                   " processes, from 0"));
  }
  return MemberTask{stages->stages()[static_cast<size_t>(options.stage)], task.objective(),
                    task.data(), task.callbacks().augment};
}

}  // namespace torchps
