#include "tests/fault/nemesis/nemesis_cluster.h"

#include <signal.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/testing/plain_worker.h"
#include "torchps/common/hash.h"
#include "torchps/common/process/command_line.h"
#include "torchps/proto/coordinator.grpc.pb.h"

namespace torchps {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(120);
constexpr absl::Duration kResetPeriod = absl::Milliseconds(700);
// With these flags a restarted server needs about one second to read a shard of 10 kB, or the log
// of half a second of pushes.
constexpr char kSlowShard[] = "--slow_disk=0.02:reads";
constexpr char kSlowLog[] = "--slow_disk=1:reads";

void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

}  // namespace

std::string NemesisCluster::Part::name() const {
  return absl::StrCat(is_server ? "server " : "worker ", index);
}

NemesisCluster::NemesisCluster(Options options)
    : options_(std::move(options)),
      random_(options_.seed),
      device_random_(options_.seed + 2),
      addresses_(NemesisJob::kServers),
      next_reset_(clock_.Now() + kResetPeriod),
      copies_(NemesisJob::kServers, /*has_log=*/true, [](std::vector<std::string> addresses) {
        return ConnectToCluster(std::move(addresses));
      }) {
  for (int i = 0; i < NemesisJob::kServers; ++i) {
    parts_.emplace_back(true, i);
    Launch(parts_.back());
    // The first start is not a fault: the server runs before the workers need it.
    parts_.back().returned = nullptr;
  }
  for (int i = 0; i < NemesisJob::kSlots; ++i) {
    const absl::StatusOr<std::string> ways = relays_.Open(i, addresses_);
    EXPECT_TRUE(ways.ok()) << ways.status();
    ways_.push_back(ways.ok() ? "TORCHPS_RELAYS=" + *ways : "");
    parts_.emplace_back(false, i);
    Launch(parts_.back());
  }
}

void NemesisCluster::Launch(Part& part) {
  part.is_frozen = false;
  part.thaw_at = absl::InfiniteDuration();
  if (!part.is_server) {
    part.program = std::make_unique<Program>(WorkerCommand(part.index));
    if (part.fault >= 0) stalls_.End(std::exchange(part.fault, -1), clock_.Now());
    return;
  }
  const bool lost_disk = part.loses_disk;
  ServerProgram server = StartServerProgram(ServerFlags(part));
  part.program = std::move(server.program);
  if (lost_disk && server.address.empty()) {
    // The server with the copies does not answer now. Supervise() starts this one again.
    part.loses_disk = true;
    return;
  }
  ASSERT_NE(server.address, "") << absl::StrJoin(part.program->error(), "\n");
  addresses_[part.index] = server.address;
  copies_.OnReturn(part.index, server.address);
  part.returned = ParameterService::NewStub(PlainChannel(server.address));
}

std::vector<std::string> NemesisCluster::ServerFlags(Part& part) {
  const std::string& address = addresses_[part.index];
  std::vector<std::string> flags;
  if (!address.empty()) flags.push_back("--listen=" + address);
  // With copies, each server has a directory of its own to lose.
  std::string directory = options_.folder;
  if (has_copies()) absl::StrAppend(&directory, "/", part.index);
  if (options_.level != DurabilitySpec::NONE) flags.push_back("--dir=" + directory);
  if (std::exchange(part.loses_disk, false)) {
    std::filesystem::remove_all(directory);
    // Server 0 fetches the coordinator's state before workers tell it where the copies are.
    if (part.index == 0) flags.push_back("--copies_at=" + addresses_[1]);
  }
  if (std::exchange(part.reads_slowly, false)) {
    flags.push_back(options_.level == DurabilitySpec::LOG ? kSlowLog : kSlowShard);
  }
  return flags;
}

std::vector<std::string> NemesisCluster::WorkerCommand(SlotId slot) {
  const Workers workers = options_.workers;
  const bool is_pusher = workers == Workers::kPushers || workers == Workers::kCopiedPushers ||
                         workers == Workers::kBatchPushers || workers == Workers::kLinkedPushers;
  std::vector<std::string> command = {
      "/usr/bin/env",
      ways_[slot],
      absl::StrCat("tests/fault/nemesis/", is_pusher ? "nemesis_worker" : "nemesis_whole_worker"),
      absl::StrJoin(addresses_, ","),
      absl::StrCat(slot),
      GetJournal(slot),
      DurabilitySpec::Level_Name(options_.level)};
  if (has_links()) {
    const char* const how = workers == Workers::kWholeEncoding ? "encoding=" : "linked=";
    // Each process gets a different seed.
    command.push_back(absl::StrCat(how, SplitMix64(device_random_)));
  }
  if (workers == Workers::kBatchPushers) command.push_back("batches");
  if (has_copies()) command.push_back("copies");
  return command;
}

bool NemesisCluster::has_links() const {
  return options_.workers == Workers::kLinkedPushers || options_.workers == Workers::kWholeLinked ||
         options_.workers == Workers::kWholeEncoding;
}

int NemesisCluster::BeginFault(const Part& part) {
  const std::set<SlotId> hit = part.is_server ? std::set<SlotId>() : std::set<SlotId>{part.index};
  return stalls_.Begin(hit, part.is_server, clock_.Now());
}

void NemesisCluster::Kill(Part& part, bool slow_return) {
  // If the part is already frozen or restarting, the same fault continues.
  if (part.fault < 0) part.fault = BeginFault(part);
  part.returned = nullptr;
  part.reads_slowly = slow_return;
  if (part.is_server) copies_.OnDeath(part.index);
  kill(part.program->pid(), SIGKILL);
}

void NemesisCluster::Freeze(Part& part) {
  const bool is_long = UniformBelow(random_, 4) == 0 && options_.long_freezes;
  const absl::Duration frozen = is_long ? absl::Milliseconds(10000 + UniformBelow(random_, 20000))
                                        : absl::Milliseconds(100 + UniformBelow(random_, 1400));
  if (part.fault < 0) part.fault = BeginFault(part);
  part.is_frozen = true;
  part.thaw_at = clock_.Now() + frozen;
  kill(part.program->pid(), SIGSTOP);
}

void NemesisCluster::Thaw(Part& part) {
  kill(part.program->pid(), SIGCONT);
  part.is_frozen = false;
  part.thaw_at = absl::InfiniteDuration();
  // If the part was restarting when it was frozen, it may still be restarting.
  if (part.returned == nullptr) stalls_.End(std::exchange(part.fault, -1), clock_.Now());
}

void NemesisCluster::Sever(std::vector<NetworkLink> links) {
  std::set<SlotId> hit;
  for (const NetworkLink& link : links) hit.insert(link.worker);
  const absl::Duration now = clock_.Now();
  const absl::Duration until = now + absl::Milliseconds(300 + UniformBelow(random_, 3200));
  relays_.Cut(links);
  cuts_.push_back({std::move(links), stalls_.Begin(std::move(hit), false, now), until});
}

void NemesisCluster::Strike(Blow blow) {
  // Draws the same random numbers for each kind, so the same seed hits the same parts.
  Part& server = parts_[UniformBelow(random_, NemesisJob::kServers)];
  Part& worker = parts_[NemesisJob::kServers + UniformBelow(random_, NemesisJob::kSlots)];
  const bool of_server = blow == Blow::kKillServer || blow == Blow::kSlowReturn ||
                         blow == Blow::kFreezeServer || blow == Blow::kCutServer ||
                         blow == Blow::kLoseDisk;
  const Part& target = of_server ? server : worker;
  if (!target.program->running()) return;
  if (blow == Blow::kLoseDisk && !copies_are_whole_) return;
  ++blows_[static_cast<int>(blow)];
  std::vector<NetworkLink> links;
  switch (blow) {
    case Blow::kKillWorker:
      return Kill(worker, false);
    case Blow::kKillServer:
      return Kill(server, false);
    case Blow::kSlowReturn:
      return Kill(server, true);
    case Blow::kFreezeWorker:
      return Freeze(worker);
    case Blow::kFreezeServer:
      return Freeze(server);
    case Blow::kCutLink:
      return Sever({{worker.index, server.index}});
    case Blow::kCutServer:
      for (int slot = 0; slot < NemesisJob::kSlots; ++slot) links.push_back({slot, server.index});
      return Sever(std::move(links));
    case Blow::kCutHalves:
      // One worker and one server on one side, the rest on the other side.
      for (int slot = 0; slot < NemesisJob::kSlots; ++slot) {
        for (int other = 0; other < NemesisJob::kServers; ++other) {
          if ((slot == worker.index) != (other == server.index)) links.push_back({slot, other});
        }
      }
      return Sever(std::move(links));
    case Blow::kStartInCut:
      Sever({{worker.index, server.index}});
      return Kill(worker, false);
    case Blow::kStartInFreeze:
      if (server.program->running()) Freeze(server);
      return Kill(worker, false);
    case Blow::kLoseDisk:
      Kill(server, false);
      server.loses_disk = true;
      copies_.OnLoss(server.index);
      copies_are_whole_ = false;
      return;
  }
}

bool NemesisCluster::Supervise() {
  const absl::Duration now = clock_.Now();
  for (Part& part : parts_) {
    if (now >= part.thaw_at) Thaw(part);
    LookAtReturned(part);
    const int code = part.program->AwaitExit(absl::ZeroDuration());
    if (code == -1) continue;
    const bool lost_slot = code == static_cast<int>(ExitCode::kLostSlot);
    const bool broken_link = has_links() && code == NemesisJob::kBrokenLink;
    const bool awaits_copies = part.is_server && part.loses_disk;
    if (code != 128 + SIGKILL && !awaits_copies &&
        (part.is_server || (!lost_slot && !broken_link))) {
      ADD_FAILURE() << part.name() << " exited with " << code << ": "
                    << absl::StrJoin(part.program->error(), "\n");
      return false;
    }
    lost_slots_ += lost_slot;
    broken_links_ += broken_link;
    if (broken_link && part.fault < 0) part.fault = BeginFault(part);
    Launch(part);
    if (testing::Test::HasFatalFailure()) return false;
  }
  for (size_t i = 0; i < cuts_.size();) {
    if (now < cuts_[i].until) {
      ++i;
      continue;
    }
    relays_.Join(cuts_[i].links);
    stalls_.End(cuts_[i].fault, now);
    cuts_.erase(cuts_.begin() + static_cast<ptrdiff_t>(i));
  }
  if (now >= next_reset_) ResetConnections();
  if (has_copies() && now >= next_look_at_copies_) LookAtCopies();
  return true;
}

void NemesisCluster::ResetConnections() {
  next_reset_ += kResetPeriod;
  ++resets_;
  // Does not reset links that are cut, because a peer that gets a reset would know that the other
  // peer is away.
  std::vector<NetworkLink> whole;
  for (int slot = 0; slot < NemesisJob::kSlots; ++slot) {
    for (int server = 0; server < NemesisJob::kServers; ++server) {
      const NetworkLink link{slot, server};
      const bool is_cut = std::any_of(cuts_.begin(), cuts_.end(), [&](const Cut& cut) {
        return std::count(cut.links.begin(), cut.links.end(), link) > 0;
      });
      if (!is_cut) whole.push_back(link);
    }
  }
  relays_.Reset(whole);
}

void NemesisCluster::LookAtReturned(Part& part) {
  if (part.returned == nullptr || part.is_frozen || !part.program->running()) return;
  grpc::ClientContext context;
  SetDeadline(context, absl::Milliseconds(100));
  ServerStatus status;
  if (!part.returned->GetServerStatus(&context, ServerStatusRequest(), &status).ok() ||
      status.has_restoring()) {
    return;
  }
  part.returned = nullptr;
  if (part.fault >= 0) stalls_.End(std::exchange(part.fault, -1), clock_.Now());
}

void NemesisCluster::LookAtCopies() {
  const bool all_run = std::all_of(parts_.begin(), parts_.end(), [](const Part& part) {
    return !part.is_server || (part.program->running() && !part.is_frozen);
  });
  if (all_run && !copies_are_whole_) copies_are_whole_ = copies_.AreWhole(absl::Milliseconds(200));
  next_look_at_copies_ = clock_.Now() + absl::Milliseconds(500);
}

void NemesisCluster::Heal() {
  for (Part& part : parts_) {
    if (part.is_frozen) Thaw(part);
  }
  for (Cut& cut : cuts_) cut.until = clock_.Now();
  next_reset_ = absl::InfiniteDuration();
}

void NemesisCluster::AwaitTraining() {
  for (Part& part : parts_) {
    if (part.is_server) continue;
    ASSERT_NE(part.program->AwaitLine("training"), "")
        << part.name() << ": " << absl::StrJoin(part.program->error(), "\n");
  }
}

void NemesisCluster::StopWorkers() {
  for (Part& part : parts_) {
    if (part.is_server) continue;
    // A worker that was just restarted does not handle signals before it trains.
    part.program->AwaitLine("training");
    part.program->AskToStop();
  }
  for (Part& part : parts_) {
    if (part.is_server) continue;
    const int code = part.program->AwaitExit(kPatience);
    // In the last step, a link may also fail, or a lease may expire on a busy machine.
    if (has_links() && code == NemesisJob::kBrokenLink) continue;
    if (code == static_cast<int>(ExitCode::kLostSlot)) continue;
    EXPECT_EQ(code, 0) << part.name() << ": " << absl::StrJoin(part.program->error(), "\n");
  }
}

void NemesisCluster::StopServers() {
  for (Part& part : parts_) {
    if (!part.is_server) continue;
    part.program->AskToStop();
    EXPECT_EQ(part.program->AwaitExit(kPatience), 0)
        << part.name() << ": " << absl::StrJoin(part.program->error(), "\n");
  }
}

JobStatus NemesisCluster::StatusOfJob() {
  const auto stub = Coordinator::NewStub(PlainChannel(addresses_[0]));
  grpc::ClientContext context;
  SetDeadline(context, absl::Seconds(5));
  JobStatus status;
  stub->GetJobStatus(&context, JobStatusRequest(), &status);
  return status;
}

std::vector<std::vector<float>> NemesisCluster::Values() {
  std::vector<std::vector<float>> values(NemesisJob::kBlocks);
  const int unit =
      NemesisJob::Unit(options_.workers == Workers::kWholeEncoding ? NemesisJob::Carriage::kInt8
                                                                   : NemesisJob::Carriage::kFloats);
  for (const std::string& address : addresses_) {
    const auto stub = ParameterService::NewStub(PlainChannel(address));
    grpc::ClientContext context;
    SetDeadline(context, kPatience);
    PullRequest request;
    request.set_read_only(true);
    const auto reader = stub->Pull(&context, request);
    for (PullFrame frame; reader->Read(&frame);) {
      std::vector<float>& block = values.at(frame.block());
      block.resize(frame.payload().size() / sizeof(float));
      std::memcpy(block.data(), frame.payload().data(), frame.payload().size());
      for (float& value : block) value /= static_cast<float>(unit);
    }
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  return values;
}

std::vector<NemesisBook> NemesisCluster::Books() const {
  std::vector<NemesisBook> accounting;
  const NemesisJob job = NemesisJob::Create(options_.level);
  for (int i = 0; i < NemesisJob::kSlots; ++i) {
    accounting.push_back(NemesisBook::Read(GetJournal(i), job.map));
  }
  return accounting;
}

std::string NemesisCluster::GetJournal(SlotId slot) const {
  return absl::StrCat(options_.folder, ".journal.", slot);
}

std::string NemesisCluster::Tally() const {
  const auto times = [this](Blow blow) { return blows_[static_cast<int>(blow)]; };
  return absl::StrCat(
      "kill -9: ", times(Blow::kKillServer) + times(Blow::kSlowReturn) + times(Blow::kLoseDisk),
      " of servers, including ", times(Blow::kSlowReturn), " slow restarts and ",
      times(Blow::kLoseDisk), " losses of the disk, ", times(Blow::kKillWorker),
      " of workers; freezes: ", times(Blow::kFreezeServer), " of servers, ",
      times(Blow::kFreezeWorker), " of workers; partitions: ", times(Blow::kCutLink),
      " of one worker and one server, ", times(Blow::kCutServer), " of one server and all, ",
      times(Blow::kCutHalves),
      " of halves; workers started in a partition: ", times(Blow::kStartInCut),
      ", while a server was frozen: ", times(Blow::kStartInFreeze), "; slots lost: ", lost_slots_,
      "; failed device links: ", broken_links_, "; resets of all connections: ", resets_);
}

}  // namespace torchps
