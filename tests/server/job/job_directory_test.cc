// Tests a server's part of a job on disk: written during the job, and restored after a restart.

#include "torchps/server/job/job_directory.h"

#include <atomic>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/faulty_file_system.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/manual_clock.h"
#include "torchps/checkpoint/manifest.h"
#include "torchps/common/mutex.h"
#include "torchps/server/job/checkpointer.h"
#include "torchps/server/job/parameter_server.h"

namespace torchps {
namespace {

constexpr char kDirectory[] = "/data";
constexpr char kLogged[] = "durability { level: LOG }";

// One server process that hosts a job and stores it in a directory.
struct Life {
  Life(FileSystem* files, const std::string& job, Incarnation incarnation = 1) {
    JobDirectory::Options options;
    options.files = files;
    options.clock = &clock;
    options.path = kDirectory;
    options.has_threads = false;
    options.log = [this](const std::string& line) { said.push_back(line); };
    directory = std::make_unique<JobDirectory>(std::move(options));
    harness_options.job = job;
    harness_options.storage = directory.get();
    harness = std::make_unique<JobHarness>(harness_options);
    EXPECT_TRUE(harness->Enter(0, incarnation).ok());
  }

  absl::Status Push(Step step, float value) { return harness->Push(0, 1, step, value)->status(); }

  // Takes a complete checkpoint.
  absl::Status Take(uint64_t number, const std::vector<uint64_t>& keep) {
    const absl::StatusOr<ShardInfo> shard = directory->WriteShard(number);
    if (!shard.ok()) return shard.status();
    return directory->Commit(GetCommit(number, *shard, keep));
  }

  CommitCheckpointRequest GetCommit(uint64_t number, const ShardInfo& shard,
                                    const std::vector<uint64_t>& keep) {
    const HelloRequest hello = JobHarness::Hello(harness_options);
    Manifest manifest;
    manifest.set_checkpoint(number);
    manifest.set_job_id(hello.job_id());
    *manifest.mutable_job() = hello.job();
    *manifest.mutable_layout() = hello.layout();
    manifest.set_server_count(1);
    *manifest.add_shard() = shard;
    manifest.mutable_coordinator()->add_server_address("alpha:7000");
    const absl::StatusOr<std::string> text = EncodeManifest(manifest);
    EXPECT_TRUE(text.ok()) << text.status();
    CommitCheckpointRequest request;
    request.set_checkpoint(number);
    request.set_job_id(hello.job_id());
    request.set_manifest(*text);
    request.set_everywhere(true);
    for (const uint64_t each : keep) request.add_keep(each);
    return request;
  }

  ManualClock clock;
  std::vector<std::string> said;
  std::unique_ptr<JobDirectory> directory;
  JobHarness::Options harness_options;
  std::unique_ptr<JobHarness> harness;
};

// Trains four steps, with a checkpoint after step 1 and one after step 3.
void TakeTwo(FileSystem* files) {
  Life life(files, "");
  ASSERT_TRUE(life.harness->Initialize(0, 1, 0.0f).ok());
  ASSERT_TRUE(life.Push(1, 1.0f).ok());
  ASSERT_EQ(life.Take(1, {1}), absl::OkStatus());
  ASSERT_TRUE(life.Push(2, 1.0f).ok());
  ASSERT_TRUE(life.Push(3, 1.0f).ok());
  ASSERT_EQ(life.Take(2, {1, 2}), absl::OkStatus());
  ASSERT_TRUE(life.Push(4, 1.0f).ok());
}

std::string GetShard(int checkpoint) {
  return CheckpointDirectory(nullptr, kDirectory).ShardPath(checkpoint, 0, 1);
}

TEST(JobDirectoryTest, ARestartRestoresTheNewestCheckpoint) {
  FaultyFileSystem files;
  TakeTwo(&files);
  files.Crash(/*seed=*/1);
  Life life(&files, "");
  EXPECT_EQ(life.harness->Value(0), -3.0f);
  EXPECT_EQ(life.harness->GetVersion(1), 3);
  const DurabilityStatus durability = life.harness->Status().durability();
  EXPECT_TRUE(durability.has_directory());
  EXPECT_EQ(durability.restored_checkpoint(), 2u);
  EXPECT_EQ(durability.checkpoint(), 2u);
  EXPECT_EQ(durability.trouble(), "");
  ASSERT_EQ(life.said.size(), 1u);
  EXPECT_TRUE(absl::StrContains(life.said[0], "server 0 restored 2 blocks")) << life.said[0];
  EXPECT_TRUE(absl::StrContains(life.said[0], "checkpoint 2")) << life.said[0];
}

TEST(JobDirectoryTest, AShardReportsItsNumberOfNonfiniteBlocks) {
  FaultyFileSystem files;
  const std::string adam = "optimizer { adam {} learning_rate: 0.1 }";
  {
    Life life(&files, adam);
    ASSERT_TRUE(life.harness->Initialize(0, 1, 0.0f).ok());
    ASSERT_TRUE(life.Push(1, 1.0f).ok());
    EXPECT_EQ(life.directory->WriteShard(1)->nonfinite_blocks(), 0u);
    // This gradient is finite, but its square is not. So the second moments of block 0 become
    // infinite.
    ASSERT_TRUE(life.harness->Frame(0, 1, 2, /*block=*/0, 1e22f, /*base=*/1).ok());
    ASSERT_EQ(life.Take(2, {2}), absl::OkStatus());
    EXPECT_EQ(life.directory->WriteShard(3)->nonfinite_blocks(), 1u);
  }
  Life life(&files, adam);
  EXPECT_EQ(life.harness->Status().durability().restored_checkpoint(), 2u);
  EXPECT_EQ(life.harness->Status().nonfinite_blocks(), 1u);
}

TEST(JobDirectoryTest, KeepsACheckpointUntilTheNextIsComplete) {
  FaultyFileSystem files;
  Life life(&files, "");
  ASSERT_TRUE(life.harness->Initialize(0, 1, 0.0f).ok());
  ASSERT_EQ(life.Take(1, {1}), absl::OkStatus());
  const absl::StatusOr<ShardInfo> shard = life.directory->WriteShard(2);
  ASSERT_TRUE(shard.ok()) << shard.status();
  CommitCheckpointRequest commit = life.GetCommit(2, *shard, {2});
  commit.set_everywhere(false);
  const CheckpointDirectory place(&files, kDirectory);
  ASSERT_EQ(life.directory->Commit(commit), absl::OkStatus());
  EXPECT_EQ(*place.Complete(), (std::vector<uint64_t>{1, 2}));
  commit.set_everywhere(true);
  ASSERT_EQ(life.directory->Commit(commit), absl::OkStatus());
  EXPECT_EQ(*place.Complete(), std::vector<uint64_t>{2});
}

// Returns the total size of the files.
int64_t UsedBytes(FaultyFileSystem* files) {
  constexpr int64_t kCapacity = int64_t{1} << 40;
  files->SetCapacity(kCapacity);
  return kCapacity - *files->FreeBytes(kDirectory);
}

TEST(JobDirectoryTest, CountsTheChangesThatNoCheckpointOrLogContains) {
  FaultyFileSystem files;
  const auto changes = [](Life& life) {
    const std::optional<JobDirectory::Unkept> unkept = life.directory->FindUnkept();
    return unkept.has_value() ? unkept->changes : 0;
  };
  {
    Life life(&files, "");
    ASSERT_TRUE(life.harness->Initialize(0, 1, 0.0f).ok());
    EXPECT_EQ(changes(life), 0) << "nothing is known yet";
    ASSERT_TRUE(life.Push(1, 1.0f).ok());
    EXPECT_EQ(changes(life), 2) << "of two blocks";
    EXPECT_EQ(life.directory->FindUnkept()->checkpoint, 0u);
    ASSERT_EQ(life.Take(1, {1}), absl::OkStatus());
    EXPECT_EQ(changes(life), 0);
    ASSERT_TRUE(life.Push(2, 1.0f).ok());
    ASSERT_TRUE(life.directory->WriteShard(2).ok());
    EXPECT_EQ(changes(life), 2) << "a shard is not a checkpoint";
    const std::optional<JobDirectory::Unkept> unkept = life.directory->FindUnkept();
    ASSERT_TRUE(unkept.has_value());
    EXPECT_EQ(unkept->checkpoint, 1u);
    EXPECT_EQ(unkept->coordinator, "alpha:7000");
  }
  files.KillProcesses();
  Life life(&files, "");
  EXPECT_EQ(changes(life), 0) << "starts from a checkpoint";
  ASSERT_TRUE(life.Push(2, 1.0f).ok());
  EXPECT_EQ(changes(life), 2);

  FaultyFileSystem other_files;
  Life logged(&other_files, kLogged);
  ASSERT_TRUE(logged.harness->Initialize(0, 1, 0.0f).ok());
  logged.harness->Push(0, 1, 1, 1.0f);
  EXPECT_EQ(changes(logged), 0) << "the log contains it";
}

// The request for checkpoint 1 comes after the one for checkpoint 2. Both checkpoints stay
// incomplete, as if another server did not answer.
TEST(JobDirectoryTest, RejectsAnOutdatedShardRequest) {
  FaultyFileSystem files;
  Life life(&files, "");
  ASSERT_TRUE(life.harness->Initialize(0, 1, 0.0f).ok());
  ASSERT_TRUE(life.directory->WriteShard(2).ok());
  const int64_t operations = files.operations();
  EXPECT_TRUE(absl::IsFailedPrecondition(life.directory->WriteShard(1).status()));
  EXPECT_EQ(files.operations(), operations);
  EXPECT_TRUE(life.directory->WriteShard(3).ok());
}

TEST(JobDirectoryTest, KeepsAtMostOneShardOfAFailedCheckpoint) {
  FaultyFileSystem files;
  Life life(&files, "");
  ASSERT_TRUE(life.harness->Initialize(0, 1, 0.0f).ok());
  ASSERT_EQ(life.Take(1, {1}), absl::OkStatus());
  const int64_t before = UsedBytes(&files);
  uint64_t number = 1;
  int64_t shard_bytes = 0;
  while (number < 101) {
    const absl::StatusOr<ShardInfo> shard = life.directory->WriteShard(++number);
    ASSERT_TRUE(shard.ok()) << shard.status();
    shard_bytes = static_cast<int64_t>(shard->bytes());
    ASSERT_EQ(UsedBytes(&files), before + shard_bytes) << number;
  }
  int directories = 0;
  const absl::StatusOr<std::vector<std::string>> names = files.List(kDirectory);
  ASSERT_TRUE(names.ok()) << names.status();
  for (const std::string& name : *names) {
    directories += absl::StartsWith(name, "checkpoint-") ? 1 : 0;
  }
  EXPECT_EQ(directories, 2) << "the good one and the last one";
  files.SetCapacity(before + 3 * shard_bytes);
  EXPECT_EQ(life.Take(102, {1, 102}), absl::OkStatus()) << "the other server is back";
  EXPECT_EQ(*CheckpointDirectory(&files, kDirectory).Complete(), (std::vector<uint64_t>{1, 102}));
}

TEST(JobDirectoryTest, RecoversADiskFilledByFailedCheckpoints) {
  FaultyFileSystem files;
  TakeTwo(&files);
  files.KillProcesses();
  Life life(&files, "");
  // Shards of failed checkpoints, such as an earlier release left behind.
  const CheckpointDirectory place(&files, kDirectory);
  const std::string shard = *ReadWholeFile(files, GetShard(2), 1 << 20);
  for (uint64_t number = 3; number < 8; ++number) {
    ASSERT_EQ(place.PrepareCheckpoint(number), absl::OkStatus());
    const std::string path = GetShard(static_cast<int>(number)) + (number == 7 ? ".tmp" : "");
    ASSERT_EQ(WriteFileAtomically(files, path, shard), absl::OkStatus());
  }
  files.SetCapacity(UsedBytes(&files));
  EXPECT_EQ(life.Take(8, {2, 8}), absl::OkStatus());
  EXPECT_EQ(*place.Complete(), (std::vector<uint64_t>{2, 8}));
  EXPECT_EQ(*place.HighestNumber(), 8u);
}

TEST(JobDirectoryTest, RefusesAShardThatDoesNotFit) {
  FaultyFileSystem files;
  Life life(&files, "");
  ASSERT_TRUE(life.harness->Initialize(0, 1, 0.0f).ok());
  ASSERT_EQ(life.Take(1, {1}), absl::OkStatus());
  const int64_t used = UsedBytes(&files);
  files.SetCapacity(used + 100);
  const int64_t operations = files.operations();
  const absl::Status refused = life.directory->WriteShard(2).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_TRUE(absl::StartsWith(
      refused.message(), "no room in /data for this server's shard of checkpoint 2: it needs "))
      << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), " bytes, and 100 are free; free some space"))
      << refused;
  EXPECT_LT(files.operations(), operations + 10) << "the disk was only read";
  EXPECT_EQ(UsedBytes(&files), used);
  EXPECT_EQ(life.harness->Status().durability().trouble(), refused.message());
  EXPECT_EQ(life.Take(3, {1, 3}), absl::OkStatus()) << "space is available again";
  EXPECT_EQ(life.harness->Status().durability().trouble(), "");
}

// The commit of checkpoint 1 comes late: the shard of checkpoint 2 has been begun, so shard 1 is
// gone.
TEST(JobDirectoryTest, ALogThatFillsTheDiskLeavesRoomForTheCheckpointThatShortensIt) {
  FaultyFileSystem files;
  Life life(&files, kLogged);
  ASSERT_TRUE(life.harness->Initialize(0, 1, 0.0f).ok());
  const absl::StatusOr<ShardInfo> shard = life.directory->WriteShard(1);
  ASSERT_TRUE(shard.ok()) << shard.status();
  ASSERT_EQ(life.directory->Commit(life.GetCommit(1, *shard, {1})), absl::OkStatus());
  // 1 MiB is for manifest and state, 2 shards for the next checkpoint.
  files.LeaveFree((1 << 20) + 4 * static_cast<int64_t>(shard->bytes()));
  uint64_t checkpoint = 1;
  int full = 0;
  for (Step step = 1; step <= 300; ++step) {
    const bool wanted = life.directory->wants_checkpoint();
    const auto pushed = life.harness->Push(0, 1, step, 1.0f);
    const absl::StatusOr<bool> wrote = life.directory->WriteLog();
    if (!wrote.ok()) {
      EXPECT_TRUE(absl::IsResourceExhausted(wrote.status())) << wrote.status();
      EXPECT_TRUE(wanted) << "it asks before the disk is full";
      ++full;
      ++checkpoint;
      const int64_t free = *files.FreeBytes(kDirectory);
      ASSERT_EQ(life.Take(checkpoint, {checkpoint}), absl::OkStatus());
      EXPECT_GT(*files.FreeBytes(kDirectory), free);
      EXPECT_FALSE(life.directory->wants_checkpoint());
    }
    EXPECT_EQ(pushed->status(), absl::OkStatus()) << "step " << step;
  }
  EXPECT_GE(full, 2);
  files.KillProcesses();
  Life again(&files, kLogged);
  EXPECT_EQ(again.harness->Value(0), -300.0f);
}

TEST(JobDirectoryTest, RejectsACommitOfACheckpointWhoseShardIsGone) {
  for (const char* const job : {"", kLogged}) {
    SCOPED_TRACE(job);
    FaultyFileSystem files;
    Life life(&files, job);
    ASSERT_TRUE(life.harness->Initialize(0, 1, 0.0f).ok());
    const absl::StatusOr<ShardInfo> shard = life.directory->WriteShard(1);
    ASSERT_TRUE(shard.ok()) << shard.status();
    files.SetFaultHook([](FaultyFileSystem::Operation operation,
                          const std::string&) -> std::optional<FaultyFileSystem::Fault> {
      if (operation != FaultyFileSystem::Operation::kSync) return std::nullopt;
      return FaultyFileSystem::Fault{EIO, 0};
    });
    EXPECT_FALSE(life.directory->WriteShard(2).ok());
    files.SetFaultHook(nullptr);
    EXPECT_EQ(life.directory->Commit(life.GetCommit(1, *shard, {1})).code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(CheckpointDirectory(&files, kDirectory).Complete()->empty());
  }
}

TEST(JobDirectoryTest, UpdatesLostInARestartDoNotReturnWithALaterManifest) {
  FaultyFileSystem files;
  TakeTwo(&files);
  CommitCheckpointRequest commit;
  {
    Life life(&files, "");
    ASSERT_TRUE(life.Push(4, 1.0f).ok());
    const absl::StatusOr<ShardInfo> shard = life.directory->WriteShard(3);
    ASSERT_TRUE(shard.ok()) << shard.status();
    commit = life.GetCommit(3, *shard, {2, 3});
  }
  files.KillProcesses();
  {
    Life life(&files, "");
    EXPECT_EQ(life.harness->Value(0), -3.0f);
    // The coordinator got the shard's figures before the crash and completes the checkpoint. The
    // restarted server has restored older values, so it refuses the commit.
    EXPECT_EQ(life.directory->Commit(commit).code(), absl::StatusCode::kFailedPrecondition);
    const CheckpointDirectory place(&files, kDirectory);
    ASSERT_EQ(place.WriteManifest(3, commit.manifest()), absl::OkStatus());
  }
  files.KillProcesses();
  Life life(&files, "");
  EXPECT_EQ(life.harness->Value(0), -3.0f);
}

TEST(JobDirectoryTest, AShardContainsOnlyLoggedChanges) {
  FaultyFileSystem files;
  {
    Life life(&files, kLogged);
    ASSERT_TRUE(life.harness->Initialize(0, 1, 0.0f).ok());
    ASSERT_TRUE(life.directory->WriteLog().ok());
    const auto unlogged = life.harness->Push(0, 1, 1, 1.0f);
    files.SetFaultHook([](FaultyFileSystem::Operation operation,
                          const std::string& path) -> std::optional<FaultyFileSystem::Fault> {
      if (operation != FaultyFileSystem::Operation::kWrite || !absl::StrContains(path, "log")) {
        return std::nullopt;
      }
      return FaultyFileSystem::Fault{ENOSPC, 0};
    });
    EXPECT_TRUE(absl::IsResourceExhausted(life.directory->WriteShard(1).status()));
    EXPECT_FALSE(unlogged->ok());
    files.SetFaultHook(nullptr);
  }
  EXPECT_TRUE(absl::IsNotFound(ReadWholeFile(files, GetShard(1), 1 << 20).status()));
  files.KillProcesses();
  Life life(&files, kLogged, /*incarnation=*/2);
  EXPECT_EQ(life.harness->Value(0), 0.0f) << "the push was not acknowledged";
}

TEST(JobDirectoryTest, WithALogAShardFromBeforeTheRestartIsCommitted) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    FaultyFileSystem files;
    CommitCheckpointRequest commit;
    {
      Life life(&files, kLogged);
      ASSERT_TRUE(life.harness->Initialize(0, 1, 0.0f).ok());
      const auto pushed = life.harness->Push(0, 1, 1, 1.0f);
      const absl::StatusOr<ShardInfo> shard = life.directory->WriteShard(1);
      ASSERT_TRUE(shard.ok()) << shard.status();
      ASSERT_TRUE(pushed->ok()) << "the shard contains it, so the log does, too";
      commit = life.GetCommit(1, *shard, {1});
    }
    files.Crash(seed);
    {
      Life life(&files, kLogged, /*incarnation=*/2);
      EXPECT_EQ(life.harness->Value(0), -1.0f);
      const auto acknowledged = life.harness->Push(0, 2, 1, 4.0f);
      ASSERT_TRUE(life.directory->WriteLog().ok());
      ASSERT_TRUE(acknowledged->ok()) << acknowledged->status();
      EXPECT_EQ(life.directory->Commit(commit), absl::OkStatus());
    }
    files.Crash(seed);
    Life life(&files, kLogged, /*incarnation=*/2);
    EXPECT_EQ(life.harness->Value(0), -5.0f);
  }
}

TEST(JobDirectoryTest, ADamagedShardFromBeforeTheRestartIsRefused) {
  FaultyFileSystem files;
  CommitCheckpointRequest commit;
  {
    Life life(&files, kLogged);
    ASSERT_TRUE(life.harness->Initialize(0, 1, 0.0f).ok());
    const absl::StatusOr<ShardInfo> shard = life.directory->WriteShard(1);
    ASSERT_TRUE(shard.ok()) << shard.status();
    commit = life.GetCommit(1, *shard, {1});
  }
  files.KillProcesses();
  const CheckpointDirectory place(&files, kDirectory);
  files.FlipBit(place.ShardPath(1, 0, 1), /*byte=*/0, /*bit=*/0);
  Life life(&files, kLogged, /*incarnation=*/2);
  EXPECT_EQ(life.directory->Commit(commit).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::IsNotFound(place.ReadManifest(1).status()));
}

// Removes a damaged log, as docs/storage.md recommends.
TEST(JobDirectoryTest, WithoutTheLogAShardFromBeforeTheRestartIsRefused) {
  FaultyFileSystem files;
  CommitCheckpointRequest commit;
  {
    Life life(&files, kLogged);
    ASSERT_TRUE(life.harness->Initialize(0, 1, 0.0f).ok());
    ASSERT_EQ(life.Take(1, {1}), absl::OkStatus());
    life.harness->Push(0, 1, 1, 1.0f);
    const absl::StatusOr<ShardInfo> shard = life.directory->WriteShard(2);
    ASSERT_TRUE(shard.ok()) << shard.status();
    commit = life.GetCommit(2, *shard, {2});
  }
  files.KillProcesses();
  const std::string log = CheckpointDirectory(nullptr, kDirectory).LogPath(0, 1);
  const absl::StatusOr<std::vector<std::string>> segments = files.List(log);
  ASSERT_TRUE(segments.ok()) << segments.status();
  for (const std::string& name : *segments) {
    ASSERT_EQ(files.RemoveFile(absl::StrCat(log, "/", name)), absl::OkStatus());
  }
  {
    Life life(&files, kLogged, /*incarnation=*/2);
    EXPECT_EQ(life.harness->Value(0), 0.0f);
    const auto acknowledged = life.harness->Push(0, 2, 1, 4.0f);
    ASSERT_TRUE(life.directory->WriteLog().ok());
    ASSERT_TRUE(acknowledged->ok()) << acknowledged->status();
    EXPECT_EQ(life.directory->Commit(commit).code(), absl::StatusCode::kFailedPrecondition);
    const CheckpointDirectory place(&files, kDirectory);
    ASSERT_EQ(place.WriteManifest(2, commit.manifest()), absl::OkStatus());
  }
  files.KillProcesses();
  Life life(&files, kLogged, /*incarnation=*/2);
  EXPECT_EQ(life.harness->Value(0), -4.0f);
}

TEST(JobDirectoryTest, ARestartRemembersReplacedIncarnations) {
  FaultyFileSystem files;
  {
    Life life(&files, "");
    ASSERT_TRUE(life.harness->Initialize(0, 1, 0.0f).ok());
    ASSERT_TRUE(life.Push(1, 1.0f).ok());
    ASSERT_TRUE(life.harness->Enter(0, 7).ok());
    ASSERT_TRUE(life.harness->Push(0, 7, 2, 1.0f)->ok());
    ASSERT_EQ(life.Take(1, {1}), absl::OkStatus());
  }
  files.Crash(/*seed=*/1);
  Life life(&files, "", /*incarnation=*/7);
  EXPECT_TRUE(absl::IsAborted(life.harness->Enter(0, 1).status()));
  EXPECT_TRUE(absl::IsAborted(life.Push(2, 1.0f)));
  ASSERT_TRUE(life.harness->Push(0, 7, 2, 1.0f)->ok()) << "a repeat";
  EXPECT_EQ(life.harness->Value(0), -2.0f);
}

// The manifest is written, but its directory is not synced. Servers that restore the checkpoint
// must sync it.
TEST(JobDirectoryTest, ARestoredCheckpointSurvivesAPowerCut) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    FaultyFileSystem files;
    {
      Life life(&files, "");
      ASSERT_TRUE(life.harness->Initialize(0, 1, 0.0f).ok());
      ASSERT_TRUE(life.Push(1, 1.0f).ok());
      const absl::StatusOr<ShardInfo> shard = life.directory->WriteShard(1);
      ASSERT_TRUE(shard.ok()) << shard.status();
      files.SetFaultHook([](FaultyFileSystem::Operation operation,
                            const std::string& path) -> std::optional<FaultyFileSystem::Fault> {
        if (operation != FaultyFileSystem::Operation::kSyncDirectory ||
            !absl::StrContains(path, "checkpoint")) {
          return std::nullopt;
        }
        return FaultyFileSystem::Fault{EIO, 0};
      });
      ASSERT_FALSE(life.directory->Commit(life.GetCommit(1, *shard, {1})).ok());
      // If a server restarts while the disk fails, it answers UNAVAILABLE, so that the workers
      // retry.
      files.KillProcesses();
      JobDirectory::Options options;
      options.files = &files;
      options.clock = &life.clock;
      options.path = kDirectory;
      JobDirectory refused(options);
      const auto tried =
          HostedJob::Create(JobHarness::Hello(life.harness_options), &life.clock, &refused);
      EXPECT_EQ(tried.status().code(), absl::StatusCode::kUnavailable) << tried.status();
      files.SetFaultHook(nullptr);
    }
    files.KillProcesses();
    {
      Life life(&files, "");
      EXPECT_EQ(life.harness->Value(0), -1.0f);
    }
    files.Crash(seed);
    Life life(&files, "");
    EXPECT_EQ(life.harness->Value(0), -1.0f);
  }
}

TEST(JobDirectoryTest, AnEmptyDirectoryStartsAnEmptyJob) {
  FaultyFileSystem files;
  Life life(&files, "");
  EXPECT_FALSE(life.harness->Enter(0, 1)->has_restored());
  EXPECT_FALSE(life.harness->Status().initialized());
  EXPECT_TRUE(life.said.empty());
  EXPECT_EQ(life.directory->WriteShard(1).status().code(), absl::StatusCode::kFailedPrecondition)
      << "the job is not initialized yet";
}

TEST(JobDirectoryTest, SkipsAndReportsADamagedCheckpoint) {
  FaultyFileSystem files;
  TakeTwo(&files);
  files.KillProcesses();
  files.FlipBit(GetShard(2), 500, 4);
  Life life(&files, "");
  EXPECT_EQ(life.harness->Value(0), -1.0f);
  ASSERT_EQ(life.said.size(), 2u);
  EXPECT_TRUE(absl::StrContains(life.said[0], GetShard(2))) << life.said[0];
  EXPECT_TRUE(absl::StrContains(life.said[1], "checkpoint 1")) << life.said[1];
}

TEST(JobDirectoryTest, RefusesTheJobWithoutAnIntactCheckpoint) {
  FaultyFileSystem files;
  TakeTwo(&files);
  files.KillProcesses();
  files.FlipBit(GetShard(1), 500, 4);
  files.FlipBit(GetShard(2), 500, 4);
  ManualClock clock;
  JobDirectory::Options options;
  options.files = &files;
  options.clock = &clock;
  options.path = kDirectory;
  JobDirectory directory(std::move(options));
  const auto job = HostedJob::Create(JobHarness::Hello({}), &clock, &directory);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kDataLoss) << job.status();
  EXPECT_TRUE(absl::StrContains(job.status().message(), GetShard(1))) << job.status();
}

TEST(JobDirectoryTest, RefusesAnotherJobOrASecondProcessInTheDirectory) {
  FaultyFileSystem files;
  TakeTwo(&files);
  ManualClock clock;
  JobDirectory::Options options;
  options.files = &files;
  options.clock = &clock;
  options.path = kDirectory;
  HelloRequest hello = JobHarness::Hello({});
  hello.set_job_id(hello.job_id() + 1);
  JobDirectory other(options);
  EXPECT_EQ(HostedJob::Create(hello, &clock, &other).status().code(),
            absl::StatusCode::kFailedPrecondition);
  JobDirectory second(options);
  EXPECT_EQ(HostedJob::Create(JobHarness::Hello({}), &clock, &second).status().code(),
            absl::StatusCode::kFailedPrecondition)
      << "the first one has the lock";
}

TEST(JobDirectoryTest, ADiskErrorLosesOnlyTheShard) {
  for (const int error : {ENOSPC, EIO, EROFS}) {
    SCOPED_TRACE(error);
    FaultyFileSystem files;
    TakeTwo(&files);
    files.KillProcesses();
    {
      Life life(&files, "");
      files.SetFaultHook([error](FaultyFileSystem::Operation operation,
                                 const std::string&) -> std::optional<FaultyFileSystem::Fault> {
        if (operation != FaultyFileSystem::Operation::kSync) return std::nullopt;
        return FaultyFileSystem::Fault{error, 0};
      });
      EXPECT_FALSE(life.Take(3, {2, 3}).ok());
      EXPECT_NE(life.harness->Status().durability().trouble(), "");
      EXPECT_TRUE(life.Push(4, 1.0f).ok()) << "training continues";
      files.SetFaultHook(nullptr);
    }
    files.KillProcesses();
    Life life(&files, "");
    EXPECT_EQ(life.harness->Value(0), -3.0f) << "the last good checkpoint is restored";
    EXPECT_EQ(life.Take(4, {2, 4}), absl::OkStatus());
    EXPECT_EQ(life.harness->Status().durability().trouble(), "");
  }
}

// Await() blocks until Give(). (ThreadSanitizer does not understand absl::Notification.)
class Notice {
 public:
  void Give() {
    MutexLock lock(&mutex_);
    given_ = true;
    changed_.SignalAll();
  }
  void Await() {
    MutexLock lock(&mutex_);
    while (!given_) changed_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool given_ ABSL_GUARDED_BY(mutex_) = false;
};

// Blocks the first write to a shard until `go_on` is given.
class Brake {
 public:
  explicit Brake(FaultyFileSystem* files) {
    files->SetFaultHook([this](FaultyFileSystem::Operation operation,
                               const std::string& path) -> std::optional<FaultyFileSystem::Fault> {
      if (operation == FaultyFileSystem::Operation::kWrite &&
          absl::StrContains(path, "safetensors") && !stopped_.exchange(true)) {
        reached.Give();
        go_on.Await();
      }
      return std::nullopt;
    });
  }
  Notice reached;
  Notice go_on;

 private:
  std::atomic<bool> stopped_{false};
};

TEST(JobDirectoryTest, TrainingContinuesWhileAShardIsWritten) {
  FaultyFileSystem files;
  Life life(&files, "");
  ASSERT_TRUE(life.harness->Initialize(0, 1, 0.0f).ok());
  Brake brake(&files);
  Checkpointer checkpointer(life.directory.get());
  Notice answered;
  absl::StatusOr<ShardInfo> answer;
  checkpointer.WriteShard(1, [&](absl::StatusOr<ShardInfo> info) {
    answer = std::move(info);
    answered.Give();
  });
  brake.reached.Await();
  for (Step step = 1; step <= 5; ++step) {
    ASSERT_TRUE(life.Push(step, 1.0f).ok());
    EXPECT_EQ(life.harness->Value(0), static_cast<float>(-step));
    EXPECT_EQ(life.harness->Value(1), static_cast<float>(-step));
  }
  brake.go_on.Give();
  answered.Await();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->file(), "server-0-of-1.safetensors");
  EXPECT_LE(answer->min_version(), answer->max_version());
}

TEST(CheckpointerTest, WritesOneShardAtATime) {
  FaultyFileSystem files;
  Life life(&files, "");
  ASSERT_TRUE(life.harness->Initialize(0, 1, 0.0f).ok());
  Brake brake(&files);
  Checkpointer checkpointer(life.directory.get());
  Notice first_answered;
  Notice second_answered;
  absl::StatusOr<ShardInfo> first;
  absl::StatusOr<ShardInfo> second;
  checkpointer.WriteShard(1, [&](absl::StatusOr<ShardInfo> info) {
    first = std::move(info);
    first_answered.Give();
  });
  brake.reached.Await();
  absl::Status other;
  checkpointer.WriteShard(2, [&](absl::StatusOr<ShardInfo> info) { other = info.status(); });
  EXPECT_EQ(other.code(), absl::StatusCode::kAlreadyExists);
  checkpointer.WriteShard(1, [&](absl::StatusOr<ShardInfo> info) {
    second = std::move(info);
    second_answered.Give();
  });
  brake.go_on.Give();
  first_answered.Await();
  second_answered.Await();
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(first->crc32c(), second->crc32c());
  const int64_t operations = files.operations();
  absl::StatusOr<ShardInfo> third;
  checkpointer.WriteShard(1, [&](absl::StatusOr<ShardInfo> info) { third = std::move(info); });
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(files.operations(), operations);

  Notice committed;
  absl::Status commit;
  checkpointer.Commit(life.GetCommit(1, *first, {1}),
                      [&](absl::StatusOr<CommitCheckpointReply> reply) {
                        commit = reply.status();
                        committed.Give();
                      });
  committed.Await();
  EXPECT_EQ(commit, absl::OkStatus());
  EXPECT_EQ(life.harness->Status().durability().checkpoint(), 1u);
}

TEST(CheckpointerTest, StopCancelsTheShardAndAnswersCallers) {
  FaultyFileSystem files;
  Life life(&files, "");
  ASSERT_TRUE(life.harness->Initialize(0, 1, 0.0f).ok());
  Brake brake(&files);
  Checkpointer checkpointer(life.directory.get());
  std::atomic<int> answered{0};
  const auto count = [&](const auto& answer) {
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable) << answer.status();
    ++answered;
  };
  bool is_stopping = false;
  const auto look = [&](const absl::StatusOr<ShardInfo>& answer) {
    is_stopping = absl::IsUnavailable(answer.status());
  };
  checkpointer.WriteShard(1, count);
  brake.reached.Await();
  CommitCheckpointRequest request;
  request.set_checkpoint(1);
  checkpointer.Commit(request, count);
  std::thread stopper([&] { checkpointer.Stop(); });
  while (!is_stopping) checkpointer.WriteShard(2, look);
  brake.go_on.Give();
  stopper.join();
  EXPECT_EQ(answered.load(), 2);
  EXPECT_EQ(*files.List(CheckpointDirectory(nullptr, kDirectory).CheckpointPath(1)),
            std::vector<std::string>())
      << "the shard is removed";
}

TEST(NoDirectoryTest, RefusesAPushLog) {
  ManualClock clock;
  ParameterServer::Options options;
  options.server_incarnation = 1;
  options.clock = &clock;
  options.receive_bytes = options.send_bytes = 1 << 20;
  ParameterServer server(options);
  JobHarness::Options job;
  job.job = "durability { level: LOG }";
  const auto refused = server.Hello(JobHarness::Hello(job));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(refused.status().message(), "--dir")) << refused.status();

  job.job = "";
  ASSERT_TRUE(server.Hello(JobHarness::Hello(job)).ok());
  WriteShardRequest request;
  request.set_checkpoint(1);
  request.set_job_id(JobHarness::Hello(job).job_id());
  absl::Status answer;
  server.WriteShard(request, [&](absl::StatusOr<ShardInfo> info) { answer = info.status(); });
  EXPECT_EQ(answer.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(answer.message(), "--dir")) << answer;
}

}  // namespace
}  // namespace torchps
