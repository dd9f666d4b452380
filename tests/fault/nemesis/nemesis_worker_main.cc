// nemesis_worker SERVERS SLOT JOURNAL LEVEL [calm]: pushes counters
// (tests/fault/nemesis/nemesis_job.h) at all servers until SIGTERM, by Protobuf's own stubs, and
// writes down what happens before it goes on. Beside that it renews its leases as a worker does,
// and leaves the clocks where it alone is cut off from a server.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "client/calls/server_channel.h"
#include "client/coordinator_client.h"
#include "client/remote_server.h"
#include "client/rollback_books.h"
#include "client/slot_leases.h"
#include "client/upkeep/heartbeat.h"
#include "client/upkeep/slot_upkeep.h"
#include "common/clock.h"
#include "common/process/exit_codes.h"
#include "common/process/stop_signal.h"
#include "common/stop_latch.h"
#include "proto/parameter_service.grpc.pb.h"
#include "rpc/grpc_process.h"
#include "tests/fault/nemesis/nemesis_job.h"
#include "tests/fault/nemesis/nemesis_journal.h"
#include "wire/layout_codec.h"
#include "wire/status_codec.h"

namespace torchps {
namespace {

// A server that is frozen is away for longer than this and comes back.
constexpr absl::Duration kCallTimeout = absl::Seconds(2);
constexpr absl::Duration kRetry = absl::Milliseconds(20);
constexpr absl::Duration kRenewal = absl::Milliseconds(300);
constexpr absl::Duration kPatience = absl::Seconds(60);

void Log(const std::string& line) { std::fprintf(stderr, "nemesis_worker: %s\n", line.c_str()); }

class Pusher {
 public:
  // Of the servers only where they are and the leases there are its business.
  Pusher(NemesisJob job, std::vector<RemoteServer*> servers, JoinReply joined,
         NemesisJournal* journal, StopLatch* stop)
      : job_(std::move(job)), joined_(std::move(joined)), journal_(*journal), stop_(*stop) {
    for (RemoteServer* const server : servers) {
      peers_.push_back({server, ParameterService::NewStub(server->endpoint().channel), 0});
    }
    versions_.resize(NemesisJob::kBlocks);
  }

  absl::Status Greet(int server) {
    HelloRequest request;
    request.set_protocol_version(kProtocolVersion);
    *request.mutable_job() = joined_.job();
    *request.mutable_layout() = EncodeLayout(job_.layout);
    request.set_slot(joined_.slot());
    request.set_incarnation(joined_.incarnation());
    request.set_server_index(server);
    request.set_server_count(NemesisJob::kServers);
    request.set_job_id(joined_.job_id());
    request.set_resumed_checkpoint(joined_.resumed_checkpoint());
    return Persist([&](grpc::ClientContext* context) {
      HelloReply reply;
      const absl::Status status =
          FromGrpcStatus(peers_[server].stub->Hello(context, request, &reply));
      if (!status.ok()) return status;
      if (reply.has_restoring()) {
        return absl::UnavailableError(
            absl::StrCat("server ", server, " ", reply.restoring().what()));
      }
      const uint64_t before = peers_[server].life;
      if (before != 0 && before != reply.server_life() && !reply.has_restored()) {
        return absl::DataLossError(absl::StrCat("server ", server, " came back with nothing"));
      }
      peers_[server].life = reply.server_life();
      step_ = std::max({step_, reply.last_step(), reply.floor()});
      journal_.Greeted(server, reply);
      peers_[server].server->lease().Begin(reply.server_life());
      return absl::OkStatus();
    });
  }

  absl::Status GreetAll() {
    for (int server = 0; server < NemesisJob::kServers; ++server) {
      if (absl::Status status = Greet(server); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Initialize() {
    const std::vector<float> zeros(NemesisJob::kBlockElements);
    for (int server = 0; server < NemesisJob::kServers; ++server) {
      if (absl::Status status = Push(server, /*step=*/0, zeros); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Until stopped.
  absl::Status Train() {
    while (!stop_.stopped()) {
      if (absl::Status status = PullAll(); !status.ok()) {
        return stop_.stopped() ? absl::OkStatus() : status;
      }
      const Step step = ++step_;
      const std::vector<float> gradient = NemesisJob::Gradient(joined_.slot(), step);
      journal_.Begin(step);
      for (int server = 0; server < NemesisJob::kServers; ++server) {
        if (absl::Status status = Push(server, step, gradient); !status.ok()) return status;
        journal_.Acknowledged(server, step);
      }
      journal_.Done(step, clock_.Now());
    }
    return absl::OkStatus();
  }

 private:
  struct Peer {
    RemoteServer* server;
    std::unique_ptr<ParameterService::Stub> stub;
    uint64_t life = 0;
  };

  struct PullCall {
    int server;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<PullFrame>> reader;
  };

  // Makes a call until it is answered. A stop does not end it, for what has begun is to be known.
  absl::Status Persist(const std::function<absl::Status(grpc::ClientContext*)>& call) {
    const absl::Time give_up = absl::Now() + kPatience;
    while (true) {
      grpc::ClientContext context;
      context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
      const absl::Status status = call(&context);
      if (!ServerPatience::MayRetry(status) || absl::Now() > give_up) return status;
      absl::SleepFor(kRetry);
    }
  }

  // The same where the server may have forgotten this slot.
  absl::Status PersistAt(int server,
                         const std::function<absl::Status(grpc::ClientContext*)>& call) {
    while (true) {
      const absl::Status status = Persist(call);
      if (!absl::IsAborted(status)) return status;
      if (absl::Status greeted = Greet(server); !greeted.ok()) return greeted;
    }
  }

  // From all servers at once, as a worker does: a server knows how far a slot is that has come
  // back only by its first pull, so a slot that waited at one server would hold up at another the
  // one that it waits for. A stop ends it: a slot that is lost may wait for one that waits for it.
  absl::Status PullAll() {
    const absl::Time give_up = absl::Now() + kPatience;
    std::vector<int> missing(NemesisJob::kServers);
    std::iota(missing.begin(), missing.end(), 0);
    while (true) {
      std::vector<std::unique_ptr<PullCall>> calls;
      for (const int server : missing) calls.push_back(BeginPull(server));
      missing.clear();
      absl::Status result;
      for (const auto& call : calls) {
        absl::Status status = FinishPull(*call);
        if (status.ok()) continue;
        missing.push_back(call->server);
        if (absl::IsAborted(status)) status = Greet(call->server);
        if (!status.ok() && !ServerPatience::MayRetry(status)) result.Update(status);
        if (!status.ok() && absl::Now() > give_up) result.Update(status);
      }
      if (!result.ok() || missing.empty()) return result;
      if (stop_.stopped()) return absl::CancelledError("stopped");
      absl::SleepFor(kRetry);
    }
  }

  std::unique_ptr<PullCall> BeginPull(int server) {
    auto call = std::make_unique<PullCall>();
    call->server = server;
    call->context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
    PullRequest request;
    request.set_slot(joined_.slot());
    request.set_incarnation(joined_.incarnation());
    request.set_clock(step_);
    request.set_server_life(peers_[server].life);
    call->reader = peers_[server].stub->Pull(&call->context, request);
    return call;
  }

  absl::Status FinishPull(PullCall& call) {
    for (PullFrame frame; call.reader->Read(&frame);) {
      versions_.at(frame.block()) = frame.version();
    }
    return FromGrpcStatus(call.reader->Finish());
  }

  absl::Status Push(int server, Step step, const std::vector<float>& gradient) {
    const std::vector<BlockId>& owned = job_.map.owned_by(server);
    return PersistAt(server, [&](grpc::ClientContext* context) {
      PushReply reply;
      const auto writer = peers_[server].stub->Push(context, &reply);
      for (const BlockId block : owned) {
        PushFrame frame;
        frame.set_slot(joined_.slot());
        frame.set_incarnation(joined_.incarnation());
        frame.set_step(step);
        frame.set_block(block);
        frame.set_base_version(versions_[block]);
        frame.set_server_life(peers_[server].life);
        frame.set_weight(1);
        frame.set_block_count(static_cast<uint32_t>(owned.size()));
        frame.set_payload(gradient.data(), gradient.size() * sizeof(float));
        if (!writer->Write(frame)) break;  // the status says why
      }
      writer->WritesDone();
      const absl::Status status = FromGrpcStatus(writer->Finish());
      if (!status.ok()) return status;
      const Verdict expected = step == 0 ? INITIALIZED : ACCEPTED;
      for (const BlockVerdict& block : reply.block()) {
        if (block.verdict() == expected) continue;
        return absl::InternalError(absl::StrCat("step ", step, " of block ", block.block(), " is ",
                                                Verdict_Name(block.verdict())));
      }
      if (step > 0 && reply.block_size() != static_cast<int>(owned.size())) {
        return absl::InternalError("an acknowledgement without a verdict for every block");
      }
      return absl::OkStatus();
    });
  }

  const SteadyClock clock_;
  const NemesisJob job_;
  const JoinReply joined_;
  NemesisJournal& journal_;
  StopLatch& stop_;
  std::vector<Peer> peers_;
  std::vector<Version> versions_;
  Step step_ = 0;
};

// Its heartbeat at the coordinator and the servers.
SlotUpkeep MakeUpkeep(const JoinReply& joined, CoordinatorClient* coordinator, SlotLeases* leases,
                      const Clock* clock) {
  SlotUpkeep::Options upkeep;
  upkeep.slot = joined.slot();
  upkeep.lease = absl::Seconds(joined.job().membership().lease_seconds());
  // It never computes.
  upkeep.standing = [] { return absl::ZeroDuration(); };
  upkeep.renew_slot = [coordinator](absl::Duration timeout, RenewSlotRequest request) {
    return coordinator->RenewSlot(timeout, std::move(request));
  };
  upkeep.renew_leases = [leases](absl::Duration timeout, absl::Duration standing,
                                 absl::Duration longest_pause) {
    return leases->Renew(timeout, standing, longest_pause);
  };
  upkeep.step_aside = [leases](absl::Duration timeout, const std::vector<int>& silent) {
    leases->StepAside(timeout, silent);
  };
  upkeep.log = &Log;
  upkeep.clock = clock;
  return SlotUpkeep(std::move(upkeep));
}

absl::Status Work(const std::vector<std::string>& addresses, SlotId slot,
                  const std::string& journal_path, const NemesisJob& job, StopLatch* stop) {
  const SteadyClock clock;
  std::vector<ServerEndpoint> servers;
  for (const std::string& address : addresses) {
    servers.push_back(ConnectToServer(static_cast<int>(servers.size()), address));
  }
  CoordinatorClient::Options options;
  options.server = servers.front();
  options.patience = kPatience;
  options.log = &Log;
  options.clock = &clock;
  options.stop = stop;
  CoordinatorClient coordinator(std::move(options));

  JoinRequest join;
  join.set_protocol_version(kProtocolVersion);
  *join.mutable_job() = job.spec;
  *join.mutable_layout() = EncodeLayout(job.layout);
  join.set_wanted_slot(slot);
  std::random_device random;
  join.set_nonce((uint64_t{random()} << 32) | random() | 1);
  join.set_host("nemesis");
  join.set_train_samples(1000);
  join.set_server_count(NemesisJob::kServers);
  for (const std::string& address : addresses) join.add_server_address(address);
  const absl::StatusOr<JoinReply> joined = coordinator.Join(join);
  if (!joined.ok()) return joined.status();

  NemesisJournal journal(journal_path);
  journal.Start(joined->incarnation());
  RollbackBooks books(job.map.blocks().size());
  ServerPatience::Options patience;
  patience.clock = &clock;
  std::vector<std::unique_ptr<RemoteServer>> remotes;
  std::vector<RemoteServer*> borrowed;
  for (const ServerEndpoint& server : servers) {
    remotes.push_back(
        std::make_unique<RemoteServer>(server, HelloRequest(), &job.map, &books, patience));
    borrowed.push_back(remotes.back().get());
  }
  SlotLeases leases(joined->slot(), joined->incarnation(), borrowed);
  SlotUpkeep upkeep = MakeUpkeep(*joined, &coordinator, &leases, &clock);
  Pusher pusher(job, borrowed, *joined, &journal, stop);
  if (absl::Status status = pusher.GreetAll(); !status.ok()) return status;
  absl::Status lost;
  absl::Status status;
  {
    const Heartbeat heartbeat(
        std::min(kRenewal, absl::Seconds(joined->job().membership().lease_seconds()) / 3),
        [&](absl::Duration timeout) { return upkeep.Renew(timeout); },
        [&](const absl::Status& status) { stop->Stop(std::string(status.message())); },
        [&] { return upkeep.pause(); });
    bool initialized = false;
    while (true) {
      const auto action = coordinator.AwaitStart(initialized);
      status = action.status();
      if (!status.ok() || *action != AwaitStartReply::INITIALIZE) break;
      status = pusher.Initialize();
      if (!status.ok()) break;
      initialized = true;
    }
    if (status.ok()) {
      std::puts("training");
      std::fflush(stdout);
      status = pusher.Train();
    }
    lost = heartbeat.status();
  }
  if (!lost.ok()) return lost;
  if (!status.ok()) return status;
  return coordinator.LeaveJob("stopped");
}

int Main(int argc, char** argv) {
  DurabilitySpec::Level level;
  SlotId slot = 0;
  if (argc < 5 || argc > 6 || !absl::SimpleAtoi(argv[2], &slot) ||
      !DurabilitySpec::Level_Parse(argv[4], &level) ||
      (argc == 6 && argv[5] != absl::string_view("calm"))) {
    Log("usage: nemesis_worker SERVERS SLOT JOURNAL LEVEL [calm]");
    return static_cast<int>(ExitCode::kUsage);
  }
  const auto pace = argc == 6 ? NemesisJob::Pace::kCalm : NemesisJob::Pace::kHurried;
  StopSignal signals;
  signals.WatchStandardInput();
  PrepareGrpcProcess();
  StopLatch stop;
  absl::Status result;
  std::thread trainer([&] {
    result =
        Work(absl::StrSplit(argv[1], ','), slot, argv[3], NemesisJob::Create(level, pace), &stop);
    signals.Request("finished");
  });
  stop.Stop(signals.Wait());
  trainer.join();
  if (!result.ok()) Log(result.ToString());
  return static_cast<int>(ExitCodeFor(result));
}

}  // namespace
}  // namespace torchps

int main(int argc, char** argv) { return torchps::Main(argc, argv); }
