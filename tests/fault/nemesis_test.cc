// Exactly once while anything dies: servers and workers as processes, connections that are reset,
// SIGSTOP and SIGCONT, kill -9 of a random server or worker every half to two seconds. For every
// (slot, step, block): applied once or not at all, and what was acknowledged is there, but for what
// a server that came back from a checkpoint has told to be lost.
//
// TORCHPS_NEMESIS_PUSHES says after how many steps of all slots together each case ends, in place
// of its seconds; TORCHPS_NEMESIS_SEED draws another schedule.

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/process/exit_codes.h"
#include "common/split_mix64.h"
#include "gtest/gtest.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/parameter_service.grpc.pb.h"
#include "rpc/grpc_process.h"
#include "tests/fault/nemesis_journal.h"
#include "tests/testing/eventually.h"
#include "tools/drill/fault_proxy.h"
#include "tests/testing/plain_worker.h"
#include "tests/testing/program.h"

namespace torchps {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(120);

struct NemesisCase {
  const char* name;
  DurabilitySpec::Level level;
  bool kills_servers;
};

template <typename T>
T FromEnvironment(const char* name, T otherwise) {
  T value = otherwise;
  const char* const wish = std::getenv(name);
  if (wish != nullptr) {
    EXPECT_TRUE(absl::SimpleAtoi(wish, &value)) << name << "=" << wish;
  }
  return value;
}

class NemesisTest : public ::testing::TestWithParam<NemesisCase> {
 protected:
  // A process that is started again when it dies.
  struct Part {
    Part(bool server, int number) : is_server(server), index(number) {}
    bool is_server;
    int index;
    std::unique_ptr<Program> program;
    int kills = 0;
    int freezes = 0;
    int lost_slots = 0;
    absl::Time thaw_at = absl::InfiniteFuture();
    std::string name() const { return absl::StrCat(is_server ? "server " : "worker ", index); }
  };

  static void SetUpTestSuite() { PrepareGrpcProcess(); }

  void SetUp() override {
    seed_ = FromEnvironment<uint64_t>("TORCHPS_NEMESIS_SEED", 1);
    random_ = seed_;
    folder_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", GetParam().name);
    std::filesystem::create_directories(folder_);
    std::printf("case %s, seed %lu\n", GetParam().name, seed_);
    for (int i = 0; i < NemesisJob::kServers; ++i) {
      addresses_.push_back("");
      parts_.emplace_back(true, i);
      ASSERT_NO_FATAL_FAILURE(Launch(parts_.back()));
      FaultProxy::Options options;
      options.target = addresses_[i];
      options.reset_period = absl::Milliseconds(700);
      options.seed = seed_ + static_cast<uint64_t>(i);
      auto proxy = FaultProxy::Start(options);
      ASSERT_TRUE(proxy.ok()) << proxy.status();
      proxies_.push_back(*std::move(proxy));
    }
    for (int i = 0; i < NemesisJob::kSlots; ++i) {
      parts_.emplace_back(false, i);
      ASSERT_NO_FATAL_FAILURE(Launch(parts_.back()));
    }
  }

  void Launch(Part& part) {
    if (!part.is_server) {
      part.program = std::make_unique<Program>(std::vector<std::string>{
          "tests/fault/nemesis_worker",
          absl::StrCat(proxies_[0]->address(), ",", proxies_[1]->address()),
          absl::StrCat(part.index), JournalOf(part.index),
          DurabilitySpec::Level_Name(GetParam().level)});
      return;
    }
    std::vector<std::string> flags;
    if (!addresses_[part.index].empty()) {
      flags.push_back(absl::StrCat("--listen=", addresses_[part.index]));
    }
    if (GetParam().level != DurabilitySpec::NONE) flags.push_back("--dir=" + folder_ + "/state");
    ServerProgram server = StartServerProgram(flags);
    ASSERT_NE(server.address, "") << absl::StrJoin(server.program->error(), "\n");
    part.program = std::move(server.program);
    addresses_[part.index] = server.address;
  }

  std::string JournalOf(SlotId slot) { return absl::StrCat(folder_, "/journal.", slot); }

  std::vector<NemesisBook> Books() {
    std::vector<NemesisBook> books;
    const NemesisJob job = NemesisJob::Create(GetParam().level);
    for (int i = 0; i < NemesisJob::kSlots; ++i) {
      books.push_back(NemesisBook::Read(JournalOf(i), job.map));
    }
    return books;
  }

  static int64_t StepsOf(const std::vector<NemesisBook>& books) {
    int64_t steps = 0;
    for (const NemesisBook& book : books) steps += book.steps;
    return steps;
  }

  // Thaws what is due and starts again what has died; false if something ended as it must not.
  bool Supervise() {
    for (Part& part : parts_) {
      if (absl::Now() >= part.thaw_at) {
        kill(part.program->pid(), SIGCONT);
        part.thaw_at = absl::InfiniteFuture();
      }
      const int code = part.program->AwaitExit(absl::ZeroDuration());
      if (code == -1) continue;
      part.thaw_at = absl::InfiniteFuture();
      const bool lost_slot = code == static_cast<int>(ExitCode::kLostSlot);
      if (code != 128 + SIGKILL && (part.is_server || !lost_slot)) {
        ADD_FAILURE() << part.name() << " exited with " << code << ": "
                      << absl::StrJoin(part.program->error(), "\n");
        return false;
      }
      part.lost_slots += lost_slot;
      Launch(part);
      if (HasFatalFailure()) return false;
    }
    return true;
  }

  // One blow against a random part.
  void Strike() {
    const size_t first = GetParam().kills_servers ? 0 : NemesisJob::kServers;
    // Servers and workers get as many blows each.
    const bool server = first == 0 && UniformBelow(random_, 2) == 0;
    const size_t index = server ? UniformBelow(random_, NemesisJob::kServers)
                                : NemesisJob::kServers + UniformBelow(random_, NemesisJob::kSlots);
    Part& part = parts_[index];
    const bool freeze = UniformBelow(random_, 4) == 0;
    const absl::Duration frozen = absl::Milliseconds(100 + UniformBelow(random_, 1400));
    if (!part.program->running()) return;
    if (freeze) {
      kill(part.program->pid(), SIGSTOP);
      part.thaw_at = absl::Now() + frozen;
      ++part.freezes;
    } else {
      kill(part.program->pid(), SIGKILL);
      ++part.kills;
    }
  }

  JobStatus StatusOfJob() {
    const auto stub = Coordinator::NewStub(PlainChannel(addresses_[0]));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
    JobStatus status;
    stub->GetJobStatus(&context, JobStatusRequest(), &status);
    return status;
  }

  // What is in the servers now, by block.
  std::vector<std::vector<float>> Values() {
    std::vector<std::vector<float>> values(NemesisJob::kBlocks);
    for (const std::string& address : addresses_) {
      const auto stub = ParameterService::NewStub(PlainChannel(address));
      grpc::ClientContext context;
      PullRequest request;
      request.set_read_only(true);
      const auto reader = stub->Pull(&context, request);
      for (PullFrame frame; reader->Read(&frame);) {
        std::vector<float>& block = values.at(frame.block());
        block.resize(frame.payload().size() / sizeof(float));
        std::memcpy(block.data(), frame.payload().data(), frame.payload().size());
      }
      const grpc::Status status = reader->Finish();
      EXPECT_TRUE(status.ok()) << status.error_message();
    }
    return values;
  }

  void Audit(const std::vector<NemesisBook>& books) {
    const std::vector<std::vector<float>> values = Values();
    int64_t lost = 0;
    int64_t doubled = 0;
    int64_t unknown = 0;
    for (BlockId id = 0; id < NemesisJob::kBlocks; ++id) {
      ASSERT_EQ(values[id].size(), NemesisJob::kBlockElements) << "block " << id;
      for (SlotId slot = 0; slot < NemesisJob::kSlots; ++slot) {
        const NemesisBook::Block& block = books[slot].blocks[id];
        unknown += static_cast<int64_t>(block.unknown.size());
        for (int modulus = 0; modulus < 2; ++modulus) {
          const int size = NemesisJob::kModulus[modulus];
          std::vector<int64_t> least(size);
          std::vector<int64_t> most(size);
          for (const Step step : block.present) ++least[step % size], ++most[step % size];
          for (const Step step : block.unknown) ++most[step % size];
          int64_t few = 0;
          int64_t many = 0;
          for (int remainder = 0; remainder < size; ++remainder) {
            const auto found =
                static_cast<int64_t>(values[id][NemesisJob::Counter(slot, modulus, remainder)]);
            few += std::max<int64_t>(0, least[remainder] - found);
            many += std::max<int64_t>(0, found - most[remainder]);
          }
          EXPECT_EQ(few, 0) << "lost of slot " << slot << " in block " << id << " modulo " << size;
          EXPECT_EQ(many, 0) << "doubled of slot " << slot << " in block " << id << " modulo "
                             << size;
          if (modulus == 0) lost += few, doubled += many;
        }
      }
    }
    int64_t acknowledged = 0;
    int64_t rolled_back = 0;
    std::printf("slot processes steps acknowledged rolled back restored lives\n");
    for (SlotId slot = 0; slot < NemesisJob::kSlots; ++slot) {
      const NemesisBook& book = books[slot];
      std::printf("%4d %9ld %5ld %12ld %11ld %14ld\n", slot, book.incarnations, book.steps,
                  book.acknowledged, book.rolled_back, book.restored_lives);
      acknowledged += book.acknowledged;
      rolled_back += book.rolled_back;
      for (const std::string& broken : book.broken_promises) ADD_FAILURE() << broken;
    }
    std::printf(
        "(slot, step, block): acknowledged %ld, told to be rolled back %ld, lost beyond "
        "that %ld, doubled %ld; never answered %ld\n",
        acknowledged, rolled_back, lost, doubled, unknown);
    if (GetParam().level != DurabilitySpec::CHECKPOINT) {
      EXPECT_EQ(rolled_back, 0);
    }
  }

  int seconds_ = 6;
  uint64_t seed_ = 0;
  uint64_t random_ = 0;
  std::string folder_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<FaultProxy>> proxies_;
  std::vector<Part> parts_;
};

TEST_P(NemesisTest, WhatIsAcknowledgedIsAppliedOnce) {
  const auto pushes = FromEnvironment<int64_t>("TORCHPS_NEMESIS_PUSHES", 0);
  for (Part& part : parts_) {
    if (part.is_server) continue;
    ASSERT_NE(part.program->AwaitLine("training"), "")
        << part.name() << ": " << absl::StrJoin(part.program->error(), "\n");
  }
  if (GetParam().level == DurabilitySpec::CHECKPOINT) {
    // Before the first one a server has nothing to come back to.
    ASSERT_TRUE(Eventually([this] { return StatusOfJob().checkpoint().number() > 0; }, kPatience));
  }

  const absl::Time begin = absl::Now();
  absl::Time next_blow = begin;
  absl::Time next_look = begin;
  const absl::Duration longest = pushes > 0 ? absl::Hours(2) : absl::Seconds(seconds_);
  ASSERT_TRUE(Eventually(
      [&] {
        if (!Supervise()) return true;
        const absl::Time now = absl::Now();
        if (now >= next_blow) {
          Strike();
          next_blow = now + absl::Milliseconds(500 + UniformBelow(random_, 1500));
        }
        if (pushes == 0) return now - begin >= longest;
        if (now < next_look) return false;
        next_look = now + absl::Seconds(5);
        return StepsOf(Books()) >= pushes;
      },
      longest + kPatience));
  ASSERT_FALSE(HasFailure());
  std::printf("%.1f s of blows\n", absl::ToDoubleSeconds(absl::Now() - begin));

  // Peace: everybody comes back and pushes again.
  for (const auto& proxy : proxies_) proxy->Heal();
  for (Part& part : parts_) part.thaw_at = std::min(part.thaw_at, absl::Now());
  const std::vector<NemesisBook> before = Books();
  ASSERT_TRUE(Eventually(
      [&] {
        if (!Supervise()) return true;
        const std::vector<NemesisBook> books = Books();
        for (int i = 0; i < NemesisJob::kSlots; ++i) {
          if (books[i].steps < before[i].steps + 20) return false;
        }
        return true;
      },
      kPatience));
  ASSERT_FALSE(HasFailure());
  for (Part& part : parts_) {
    if (!part.is_server) part.program->AskToStop();
  }
  for (Part& part : parts_) {
    if (part.is_server) continue;
    EXPECT_EQ(part.program->AwaitExit(kPatience), 0)
        << part.name() << ": " << absl::StrJoin(part.program->error(), "\n");
  }
  int kills[2] = {};
  int freezes[2] = {};
  int lost_slots = 0;
  for (const Part& part : parts_) {
    kills[part.is_server] += part.kills;
    freezes[part.is_server] += part.freezes;
    lost_slots += part.lost_slots;
  }
  std::printf(
      "kill -9: %d of servers, %d of workers; freezes: %d of servers, %d of workers, of "
      "which %d lost their slot; connections reset: %lu\n",
      kills[1], kills[0], freezes[1], freezes[0], lost_slots,
      proxies_[0]->resets() + proxies_[1]->resets());
  Audit(Books());
  for (Part& part : parts_) {
    if (!part.is_server) continue;
    part.program->AskToStop();
    EXPECT_EQ(part.program->AwaitExit(kPatience), 0)
        << part.name() << ": " << absl::StrJoin(part.program->error(), "\n");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Levels, NemesisTest,
    ::testing::Values(NemesisCase{"Workers", DurabilitySpec::NONE, false},
                      NemesisCase{"Checkpoint", DurabilitySpec::CHECKPOINT, true},
                      NemesisCase{"Log", DurabilitySpec::LOG, true}),
    [](const ::testing::TestParamInfo<NemesisCase>& info) { return info.param.name; });

}  // namespace
}  // namespace torchps
