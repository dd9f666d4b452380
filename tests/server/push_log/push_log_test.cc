#include "torchps/server/push_log/push_log.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/push_log/log_rig.h"
#include "tests/testing/eventually.h"
#include "tests/testing/manual_clock.h"
#include "torchps/common/hash.h"
#include "torchps/server/push_log/log_thread.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Operation = FaultyFileSystem::Operation;
using Fault = FaultyFileSystem::Fault;

// Copier that does nothing. The tests call RaiseCopied() themselves.
class FakeCopier final : public LogCopier {
 public:
  void Wake() override {}
  void Stop() override {}
};

std::vector<std::string> GetSegments(LogRig& rig) {
  const auto names = rig.files.List(LogRig::kDirectory);
  return names.ok() ? *names : std::vector<std::string>();
}

TEST(PushLogTest, KeepsRecordsInOrder) {
  LogRig rig;
  {
    auto log = rig.Open();
    ASSERT_TRUE(log.ok()) << log.status();
    LogRig::Append(log->get(), "one");
    LogRig::Append(log->get(), "two");
    EXPECT_TRUE(*(*log)->WriteGroup());
    EXPECT_FALSE(*(*log)->WriteGroup()) << "everything is written";
    LogRig::Append(log->get(), "three");
    EXPECT_TRUE(*(*log)->WriteGroup());
    EXPECT_EQ((*log)->figures().records, 3u);
    EXPECT_EQ((*log)->figures().syncs, 3u) << "the new segment is a group";
  }
  rig.files.Crash(1);
  auto again = rig.Open();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT(rig.payloads, ElementsAre("one", "two", "three"));
  EXPECT_THAT(rig.read, ElementsAre(1, 2, 3));
  LogRig::Append(again->get(), "four");
  EXPECT_TRUE(*(*again)->WriteGroup());
  ASSERT_TRUE(rig.Read().ok());
  EXPECT_THAT(rig.payloads, ElementsAre("one", "two", "three", "four"));
}

TEST(PushLogTest, NotifiesWhenEarlierRecordsAreDurable) {
  LogRig rig;
  auto log = *rig.Open();
  std::vector<int> told;
  EXPECT_EQ(log->WhenDurable([&] { told.push_back(0); }), 0u) << "there is nothing to wait for";
  LogRig::Append(log.get(), "one");
  EXPECT_NE(log->WhenDurable([&] { told.push_back(1); }), 0u);
  const auto cancelled = log->WhenDurable([&] { told.push_back(2); });
  LogRig::Append(log.get(), "two");
  EXPECT_NE(log->WhenDurable([&] { told.push_back(3); }), 0u);
  log->CancelDurable(cancelled);
  EXPECT_THAT(told, IsEmpty());
  ASSERT_TRUE(*log->WriteGroup());
  EXPECT_THAT(told, ElementsAre(1, 3)) << "one sync for both";
  EXPECT_EQ(log->WhenDurable([&] { told.push_back(4); }), 0u);
}

TEST(PushLogTest, WhenRoomWaitsWhileTheBufferIsFull) {
  LogRig rig;
  auto log = *rig.Open(/*buffer_bytes=*/1000);
  bool room = false;
  EXPECT_EQ(log->WhenRoom([&] { room = true; }), 0u);
  LogRig::Append(log.get(), std::string(2000, 'x'));
  EXPECT_NE(log->WhenRoom([&] { room = true; }), 0u);
  bool never = false;
  log->CancelRoom(log->WhenRoom([&] { never = true; }));
  ASSERT_TRUE(*log->WriteGroup());
  EXPECT_TRUE(room);
  EXPECT_FALSE(never);
}

TEST(PushLogTest, WithACopyARecordIsDurableOnceWrittenAndCopied) {
  LogRig rig;
  FakeCopier copier;
  rig.copier = &copier;
  auto log = *rig.Open(/*buffer_bytes=*/1000);
  std::vector<int> told;
  LogRig::Append(log.get(), "one");
  EXPECT_NE(log->WhenDurable([&] { told.push_back(1); }), 0u);
  ASSERT_TRUE(*log->WriteGroup());
  LogRig::Append(log.get(), std::string(2000, 'x'));
  EXPECT_NE(log->WhenDurable([&] { told.push_back(2); }), 0u);
  EXPECT_NE(log->WhenRoom([&] { told.push_back(3); }), 0u);
  ASSERT_TRUE(*log->WriteGroup());
  EXPECT_THAT(told, IsEmpty()) << "on disk, but not copied";
  EXPECT_EQ(log->extent().sequence, 2u);
  log->RaiseCopied(1);
  EXPECT_THAT(told, ElementsAre(1));
  log->RaiseCopied(2);
  EXPECT_THAT(told, ElementsAre(1, 2, 3));
  // The next record is on neither disk yet, so it waits for both.
  LogRig::Append(log.get(), "three");
  EXPECT_NE(log->WhenDurable([&] { told.push_back(4); }), 0u);
  ASSERT_TRUE(*log->WriteGroup());
  log->RaiseCopied(3);
  EXPECT_EQ(told.back(), 4);
  EXPECT_EQ(log->WhenDurable([] {}), 0u);
  // After a restart the log does not know of the copy until RaiseCopied().
  log.reset();
  rig.files.KillProcesses();
  log = *rig.Open();
  EXPECT_NE(log->WhenDurable([&] { told.push_back(5); }), 0u);
  log->RaiseCopied(log->extent().sequence);
  EXPECT_EQ(told.back(), 5);
}

TEST(PushLogTest, ExtentListsTheSegmentsAndBytesToCopy) {
  LogRig rig;
  auto log = *rig.Open();
  EXPECT_THAT(log->extent().segments, IsEmpty()) << "a segment without records may be rewritten";
  LogRig::Append(log.get(), "one");
  EXPECT_EQ(log->extent().sequence, 0u) << "not on disk yet";
  while (*log->WriteGroup()) {
  }
  log->Rotate();
  LogRig::Append(log.get(), "two");
  while (*log->WriteGroup()) {
  }
  log->Rotate();
  while (*log->WriteGroup()) {
  }
  const PushLog::Extent extent = log->extent();
  EXPECT_EQ(extent.sequence, 2u);
  ASSERT_EQ(extent.segments.size(), 2u);
  for (size_t i = 0; i < extent.segments.size(); ++i) {
    EXPECT_EQ(extent.segments[i].number, i + 1);
    const auto file =
        rig.files.OpenForReading(absl::StrCat(LogRig::kDirectory, "/", LogSegmentName(i + 1)));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(extent.segments[i].bytes, (*file)->size());
  }
}

// The copy is the only one on a second disk. It must not be removed before another one replaces it.
TEST(PushLogTest, ExtentKeepsTheTailUntilTheNextSegmentRepeatsIt) {
  LogRig rig;
  FakeCopier copier;
  rig.copier = &copier;
  auto log = *rig.Open();
  LogRig::Append(log.get(), "one");
  while (*log->WriteGroup()) {
  }
  const PushLog::Extent before = log->extent();
  ASSERT_EQ(before.segments.size(), 1u);
  log->RaiseCopied(before.sequence);
  log.reset();
  rig.files.KillProcesses();
  rig.files.LeaveFree(0);
  log = *rig.Open();
  ASSERT_EQ(log->extent().segments.size(), 1u) << "no room for the next segment";
  EXPECT_EQ(log->extent().segments[0].number, before.segments[0].number);
  EXPECT_EQ(log->extent().segments[0].bytes, before.segments[0].bytes);
  rig.files.LeaveFree(1 << 20);
  while (*log->WriteGroup()) {
  }
  EXPECT_EQ(log->extent().sequence, 1u);
  EXPECT_EQ(log->extent().segments.back().number, before.segments[0].number + 1);
  log.reset();
  rig.files.KillProcesses();
  ASSERT_TRUE(rig.Read().ok());
  EXPECT_THAT(rig.payloads, ElementsAre("one"));
}

// If the server that keeps the copy crashes while it writes, the end of the copy may be damaged.
// Records after the damage were on the log's own disk, but not in the copy. They were not
// acknowledged, so reading ends before the damage.
TEST(PushLogTest, AcceptsATornTailAfterTheCopiedPart) {
  for (const bool is_copied : {true, false}) {
    LogRig rig;
    FakeCopier copier;
    if (is_copied) rig.copier = &copier;
    auto log = *rig.Open();
    for (const char* payload : {"one", "two", "three", "four"}) {
      LogRig::Append(log.get(), payload);
      while (*log->WriteGroup()) {
      }
      if (payload == std::string("two") && is_copied) log->RaiseCopied(2);
    }
    log.reset();
    rig.files.KillProcesses();
    const auto record = [](int bytes) { return static_cast<int64_t>(LogRecordBytes(0, 0, bytes)); };
    const int64_t third = static_cast<int64_t>(kLogSegmentHeaderBytes) + 2 * record(3);
    rig.files.FlipBit(absl::StrCat(LogRig::kDirectory, "/", LogSegmentName(1)), third + 90, 1);
    const auto end = rig.Read();
    EXPECT_EQ(end.ok(), is_copied) << end.status();
    if (is_copied) {
      EXPECT_THAT(rig.payloads, ElementsAre("one", "two"));
    }
  }
}

TEST(PushLogTest, DropsASegmentCoveredByACheckpoint) {
  LogRig rig;
  auto log = *rig.Open();
  LogRig::Append(log.get(), "one");
  LogRig::Append(log.get(), "two");
  const uint64_t first = log->Rotate();
  EXPECT_EQ(first, 2u);
  LogRig::Append(log.get(), "three");
  while (*log->WriteGroup()) {
  }
  EXPECT_THAT(GetSegments(rig), ElementsAre(LogSegmentName(1), LogSegmentName(2)));
  // Without new records a rotation also starts a segment, so that the earlier one can be dropped.
  EXPECT_EQ(log->Rotate(), 3u);
  EXPECT_EQ(log->Rotate(), 3u);
  while (*log->WriteGroup()) {
  }
  ASSERT_TRUE(log->DropThrough(1).ok());
  EXPECT_THAT(GetSegments(rig),
              ElementsAre(LogSegmentName(1), LogSegmentName(2), LogSegmentName(3)));
  ASSERT_TRUE(log->DropThrough(first).ok());
  EXPECT_THAT(GetSegments(rig), ElementsAre(LogSegmentName(2), LogSegmentName(3)));
  ASSERT_TRUE(rig.Read().ok());
  EXPECT_THAT(rig.payloads, ElementsAre("three"));
  ASSERT_TRUE(log->DropThrough(3).ok());
  EXPECT_THAT(GetSegments(rig), ElementsAre(LogSegmentName(3)));
  log.reset();
  rig.files.KillProcesses();
  log = *rig.Open();
  EXPECT_THAT(rig.payloads, IsEmpty());
  LogRig::Append(log.get(), "four");
  ASSERT_TRUE(*log->WriteGroup());
  EXPECT_THAT(GetSegments(rig), ElementsAre(LogSegmentName(3))) << "the empty segment was reused";
  ASSERT_TRUE(rig.Read().ok());
  EXPECT_THAT(rig.read, ElementsAre(4)) << "numbers continue over restarts and checkpoints";
}

TEST(PushLogTest, AFullDiskDelaysAcknowledgements) {
  LogRig rig;
  auto log = *rig.Open();
  LogRig::Append(log.get(), "before");
  ASSERT_TRUE(*log->WriteGroup());
  rig.files.SetCapacity(300);
  LogRig::Append(log.get(), std::string(500, 'a'));
  bool durable = false;
  log->WhenDurable([&] { durable = true; });
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(absl::IsResourceExhausted(log->WriteGroup().status()));
    LogRig::Append(log.get(), std::string(500, static_cast<char>('b' + i)));
  }
  EXPECT_FALSE(durable);
  EXPECT_THAT(log->figures().trouble, HasSubstr("No space left"));
  rig.files.SetCapacity(1 << 20);
  ASSERT_TRUE(*log->WriteGroup());
  EXPECT_TRUE(durable);
  EXPECT_EQ(log->figures().trouble, "");
  ASSERT_TRUE(*log->WriteGroup());
  rig.files.Crash(3);
  ASSERT_TRUE(rig.Read().ok());
  EXPECT_THAT(rig.read, ElementsAre(1, 2, 3, 4, 5, 6, 7));
}

TEST(PushLogTest, OnlyAFlushAndTheFirstRecordsUseTheReserve) {
  LogRig rig;
  rig.reserve_bytes = 5000;
  rig.files.LeaveFree(4000);
  auto log = *rig.Open();
  LogRig::Append(log.get(), "one");
  ASSERT_TRUE(*log->WriteGroup()) << "no checkpoint could shorten an empty log";
  for (int round = 0; round < 3; ++round) {
    LogRig::Append(log.get(), "two");
    EXPECT_TRUE(absl::IsResourceExhausted(log->WriteGroup().status()));
    EXPECT_TRUE(log->wants_checkpoint());
    const uint64_t covered = log->Rotate();
    ASSERT_EQ(log->Flush(), absl::OkStatus());
    ASSERT_EQ(log->DropThrough(covered), absl::OkStatus());
    EXPECT_FALSE(log->wants_checkpoint());
    EXPECT_EQ(GetSegments(rig).size(), 1u) << "the log has no records any more";
    LogRig::Append(log.get(), "three");
    ASSERT_TRUE(*log->WriteGroup());
  }
}

TEST(PushLogTest, ALongLogWantsACheckpoint) {
  LogRig rig;
  rig.checkpoint_bytes = 2000;
  auto log = *rig.Open();
  LogRig::Append(log.get(), std::string(1000, 'x'));
  ASSERT_TRUE(*log->WriteGroup());
  EXPECT_FALSE(log->wants_checkpoint());
  LogRig::Append(log.get(), std::string(1000, 'x'));
  ASSERT_TRUE(*log->WriteGroup());
  ASSERT_FALSE(*log->WriteGroup());
  const uint64_t covered = log->Rotate();
  ASSERT_EQ(log->Flush(), absl::OkStatus());
  EXPECT_TRUE(log->wants_checkpoint());
  ASSERT_EQ(log->DropThrough(covered), absl::OkStatus());
  EXPECT_FALSE(log->wants_checkpoint());
}

TEST(PushLogTest, FlushWritesEveryRecordOrReturnsTheError) {
  LogRig rig;
  auto log = *rig.Open();
  EXPECT_EQ(log->Flush(), absl::OkStatus());
  LogRig::Append(log.get(), "one");
  log->Rotate();
  LogRig::Append(log.get(), "two");
  bool durable = false;
  log->WhenDurable([&] { durable = true; });
  EXPECT_EQ(log->Flush(), absl::OkStatus());
  EXPECT_TRUE(durable);
  rig.files.SetCapacity(1);
  LogRig::Append(log.get(), "three");
  EXPECT_TRUE(absl::IsResourceExhausted(log->Flush()));
  rig.files.SetCapacity(1 << 20);
  EXPECT_EQ(log->Flush(), absl::OkStatus());
  rig.files.Crash(3);
  ASSERT_TRUE(rig.Read().ok());
  EXPECT_THAT(rig.payloads, ElementsAre("one", "two", "three"));
}

TEST(PushLogTest, WritesRecordsAgainAfterAFailedSync) {
  for (int failures = 1; failures <= 4; ++failures) {
    LogRig rig;
    auto log = *rig.Open();
    LogRig::Append(log.get(), "one");
    ASSERT_TRUE(*log->WriteGroup());
    LogRig::Append(log.get(), "two");
    int left = failures;
    rig.files.SetFaultHook([&](Operation operation, const std::string&) -> std::optional<Fault> {
      if (operation != Operation::kSync || left == 0) return std::nullopt;
      --left;
      return Fault{EIO, 0};
    });
    bool durable = false;
    log->WhenDurable([&] { durable = true; });
    while (left > 0) {
      EXPECT_FALSE(log->WriteGroup().ok());
      EXPECT_FALSE(durable);
    }
    ASSERT_TRUE(*log->WriteGroup());
    EXPECT_TRUE(durable);
    LogRig::Append(log.get(), "three");
    ASSERT_TRUE(*log->WriteGroup());
    EXPECT_LE(GetSegments(rig).size(), 3u) << "two segments, and leftovers of a failed attempt";
    // The page cache drops pages that could not be synced.
    rig.files.Crash(failures);
    const auto end = rig.Read();
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_THAT(rig.payloads, ElementsAre("one", "two", "three"));
  }
}

TEST(PushLogTest, RefusesAnUnusableDirectory) {
  LogRig rig;
  rig.files.SetFaultHook([&](Operation operation, const std::string&) -> std::optional<Fault> {
    if (operation == Operation::kCreate) return Fault{EROFS, 0};
    return std::nullopt;
  });
  EXPECT_TRUE(absl::IsFailedPrecondition(rig.Open().status()));
}

// Cuts the power at random operations, in one process after another. All records reported as
// durable must survive, the surviving records must be a prefix of the appended ones, and the log
// must always open.
TEST(PushLogTest, KeepsDurableRecordsAfterAnyPowerCut) {
  int crashes = 0;
#ifdef TORCHPS_TSAN
  constexpr uint64_t kSeeds = 20;
#else
  constexpr uint64_t kSeeds = 200;
#endif
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    uint64_t random = seed;
    LogRig rig;
    std::vector<std::string> appended;  // by all processes; record i has sequence i + 1
    size_t durable = 0;
    for (int life = 0; life < 12; ++life) {
      rig.files.PowerOffAt(1 + static_cast<int64_t>(UniformBelow(random, 60)));
      auto opened = rig.Open();
      if (opened.ok()) {
        ASSERT_GE(rig.payloads.size(), durable);
        ASSERT_LE(rig.payloads.size(), appended.size());
        for (size_t i = 0; i < rig.payloads.size(); ++i) ASSERT_EQ(rig.payloads[i], appended[i]);
        appended.resize(rig.payloads.size());
        PushLog* const log = opened->get();
        const auto is_durable = [&durable, number = appended.size()] {
          durable = std::max(durable, number);
        };
        // Workers may repeat a push from before the restart, which waits for records of earlier
        // processes.
        if (log->WhenDurable(is_durable) == 0) is_durable();
        for (int i = 0; i < 25; ++i) {
          const uint64_t what = UniformBelow(random, 10);
          if (what < 5) {
            appended.push_back(absl::StrCat("life ", life, " record ", i));
            appended.back().resize(UniformBelow(random, 300), '.');
            LogRig::Append(log, appended.back());
            const size_t number = appended.size();
            log->WhenDurable([&durable, number] { durable = std::max(durable, number); });
          } else if (what == 5) {
            log->Rotate();
          } else if (const auto wrote = log->WriteGroup(); !wrote.ok()) {
            if (UniformBelow(random, 3) == 0) break;
          }
        }
      } else {
        ASSERT_TRUE(absl::IsUnavailable(opened.status())) << opened.status();
      }
      ++crashes;
      if (UniformBelow(random, 3) == 0) {
        rig.files.PowerOffAt(std::numeric_limits<int32_t>::max());
        rig.files.KillProcesses();
      } else {
        rig.files.Crash(SplitMix64(random));
      }
    }
    rig.files.PowerOffAt(std::numeric_limits<int32_t>::max());
    const auto end = rig.Read();
    ASSERT_TRUE(end.ok()) << end.status();
    ASSERT_GE(rig.payloads.size(), durable);
    for (size_t i = 0; i < rig.payloads.size(); ++i) ASSERT_EQ(rig.payloads[i], appended[i]);
  }
  std::printf("%d crashes\n", crashes);
}

// Flips random bits of a log of two segments, whose records were written alone or several at a
// time. The reader must refuse the log, or return all records except the last one.
TEST(PushLogTest, DetectsDamageAnywhere) {
  const uint64_t seed = 20261121;
  SCOPED_TRACE(seed);
  uint64_t random = seed;
  int refused = 0;
  int cut = 0;
  LogRig rig;
  std::vector<std::string> appended;
  auto log = *rig.Open();
  for (int i = 0; i < 6; ++i) {
    appended.push_back(std::string(10 + i, static_cast<char>('a' + i)));
    LogRig::Append(log.get(), appended.back());
    if (i == 3) log->Rotate();
    if (i == 1 || i >= 3) {
      while (*log->WriteGroup()) {
      }
    }
  }
  log.reset();
  const std::vector<std::string> names = GetSegments(rig);
  ASSERT_EQ(names.size(), 2u);
  for (int trial = 0; trial < 10000; ++trial) {
    const std::string path =
        absl::StrCat(LogRig::kDirectory, "/", names[UniformBelow(random, names.size())]);
    const int64_t size = (*rig.files.OpenForReading(path))->size();
    const auto byte = static_cast<int64_t>(UniformBelow(random, size));
    const int bit = static_cast<int>(UniformBelow(random, 8));
    rig.files.FlipBit(path, byte, bit);
    const auto end = rig.Read();
    rig.files.FlipBit(path, byte, bit);
    if (!end.ok()) {
      ASSERT_TRUE(absl::IsDataLoss(end.status())) << end.status();
      ASSERT_THAT(std::string(end.status().message()), HasSubstr(path));
      ASSERT_THAT(std::string(end.status().message()), HasSubstr("byte "));
      ++refused;
      continue;
    }
    // Only the very last record may be treated as torn, because the log does not show that it was
    // synced.
    ASSERT_GT(end->cut_bytes, 0);
    ASSERT_EQ(rig.payloads.size(), appended.size() - 1);
    for (size_t i = 0; i < rig.payloads.size(); ++i) ASSERT_EQ(rig.payloads[i], appended[i]);
    ++cut;
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(cut, 0);
  std::printf("10000 flips: %d refused, %d cut off the last record\n", refused, cut);
}

TEST(PushLogTest, ReadingCutsATornTailAndTheLogContinues) {
  for (int64_t length = 0;; ++length) {
    LogRig rig;
    auto log = *rig.Open();
    LogRig::Append(log.get(), "one");
    ASSERT_TRUE(*log->WriteGroup());
    LogRig::Append(log.get(), "two");
    LogRig::Append(log.get(), "three");
    ASSERT_TRUE(*log->WriteGroup());
    log.reset();
    const std::string path = absl::StrCat(LogRig::kDirectory, "/", LogSegmentName(1));
    auto file = *rig.files.OpenForAppend(path);
    if (length > file->size()) break;
    ASSERT_TRUE(file->Truncate(length).ok());
    const auto end = rig.Read();
    if (length < static_cast<int64_t>(kLogSegmentHeaderBytes)) {
      EXPECT_TRUE(absl::IsDataLoss(end.status())) << length << ": " << end.status();
      continue;
    }
    ASSERT_TRUE(end.ok()) << end.status();
    const size_t whole = rig.payloads.size();
    // The log continues after the cut.
    auto again = rig.Open();
    ASSERT_TRUE(again.ok()) << again.status();
    LogRig::Append(again->get(), "more");
    ASSERT_TRUE(*(*again)->WriteGroup());
    ASSERT_TRUE(rig.Read().ok());
    ASSERT_EQ(rig.payloads.size(), whole + 1);
    EXPECT_EQ(rig.payloads.back(), "more");
  }
}

// Returns a payload full of record headers, as forged by a worker that knows the format. Each
// header claims that `damaged` was on disk when the record was written.
std::string ForgedHeaders(uint64_t salt, uint64_t damaged, uint64_t sequence) {
  LogRecord forged;
  forged.sequence = sequence;
  std::string header(LogRecordBytes(0, 0, 0), '\0');
  auto* const bytes = reinterpret_cast<uint8_t*>(&header[0]);
  WriteLogRecord(forged, FramePayload(), bytes);
  SealLogRecord(salt, damaged, bytes);
  return header + header + header;
}

// Writes a log whose second and last record contains forged headers and is torn. The record ends at
// byte `at`, or has zeros before it, because disks write pages in any order. Returns the number of
// records read. OUT_OF_RANGE: the record ends before `at`.
absl::StatusOr<size_t> ReadForged(uint64_t salt, int64_t at, bool cut_off, uint64_t sequence = 3) {
  LogRig rig;
  auto log = *rig.Open();
  LogRig::Append(log.get(), "one");
  EXPECT_TRUE(*log->WriteGroup());
  const std::string path = absl::StrCat(LogRig::kDirectory, "/", LogSegmentName(1));
  const int64_t begin = (*rig.files.OpenForReading(path))->size();
  LogRig::Append(log.get(), ForgedHeaders(salt, /*damaged=*/2, sequence));
  EXPECT_TRUE(*log->WriteGroup());
  log.reset();
  const std::string bytes = *ReadWholeFile(rig.files, path, 1 << 20);
  if (begin + at >= static_cast<int64_t>(bytes.size())) return absl::OutOfRangeError("");
  if (cut_off) {
    EXPECT_TRUE((*rig.files.OpenForAppend(path))->Truncate(begin + at).ok());
  } else {
    for (int64_t byte = begin; byte < begin + at; ++byte) {
      for (int bit = 0; bit < 8; ++bit) {
        if (bytes[byte] >> bit & 1) rig.files.FlipBit(path, byte, bit);
      }
    }
  }
  if (const absl::Status read = rig.Read().status(); !read.ok()) return read;
  return rig.payloads.size();
}

TEST(PushLogTest, DoesNotMistakeAPayloadForARecord) {
  int torn = 0;
  for (const bool cut_off : {true, false}) {
    for (int64_t at = cut_off ? 0 : 1;; ++at) {
      const absl::StatusOr<size_t> read = ReadForged(/*salt=*/0, at, cut_off);
      if (absl::IsOutOfRange(read.status())) break;
      ASSERT_TRUE(read.ok()) << at << ": " << read.status();
      ASSERT_EQ(*read, 1u) << at;
      ++torn;
    }
  }
  std::printf("torn in %d ways\n", torn);
  // With the right salt, a forged header is taken for a record after the damage, so the log is
  // refused.
  uint64_t salts = LogRig().salts;
  const uint64_t salt = SplitMix64(salts);
  EXPECT_TRUE(absl::IsDataLoss(ReadForged(salt, /*at=*/5, /*cut_off=*/false).status()));
  // The forged header also needs the right sequence number.
  EXPECT_TRUE(ReadForged(salt, /*at=*/5, /*cut_off=*/false, /*sequence=*/2).ok());
  EXPECT_TRUE(ReadForged(salt, /*at=*/5, /*cut_off=*/false, /*sequence=*/7).ok());
}

TEST(PushLogTest, EachSegmentHasADifferentSalt) {
  LogRig rig;
  auto log = *rig.Open();
  LogRig::Append(log.get(), "one");
  log->Rotate();
  LogRig::Append(log.get(), "two");
  while (*log->WriteGroup()) {
  }
  // Records of a failed sync are written and sealed again with the next segment's salt.
  int failures = 1;
  rig.files.SetFaultHook([&](Operation operation, const std::string&) -> std::optional<Fault> {
    if (operation != Operation::kSync || failures-- <= 0) return std::nullopt;
    return Fault{EIO, 0};
  });
  LogRig::Append(log.get(), "three");
  EXPECT_FALSE(log->WriteGroup().ok());
  EXPECT_TRUE(*log->WriteGroup());
  log.reset();
  // After a restart the log writes to a new segment.
  rig.files.KillProcesses();
  log = *rig.Open();
  LogRig::Append(log.get(), "four");
  while (*log->WriteGroup()) {
  }
  const auto end = rig.Read();
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_THAT(rig.payloads, ElementsAre("one", "two", "three", "four"));
  std::set<uint64_t> salts;
  for (const LogSegmentHeader& segment : end->segments) salts.insert(segment.salt);
  EXPECT_EQ(salts.size(), end->segments.size());
  EXPECT_GE(salts.size(), 3u);
}

TEST(PushLogTest, RefusesALogOfAnotherJobOrWithAMissingSegment) {
  LogRig rig;
  auto log = *rig.Open();
  for (int i = 0; i < 3; ++i) {
    LogRig::Append(log.get(), "record");
    log->Rotate();
    while (*log->WriteGroup()) {
    }
  }
  const auto read = [&](LogIdentity identity) {
    return ReadPushLog(rig.files, LogRig::kDirectory, identity,
                       [](const LogRecord&, const FramePayload&) { return absl::OkStatus(); })
        .status();
  };
  LogIdentity other = LogRig::Identity();
  EXPECT_TRUE(read(other).ok());
  other.job_id = 5;
  EXPECT_TRUE(absl::IsFailedPrecondition(read(other))) << read(other);
  EXPECT_THAT(std::string(read(other).message()), HasSubstr("job 77"));
  other = LogRig::Identity();
  other.server_count = 3;
  EXPECT_TRUE(absl::IsFailedPrecondition(read(other)));
  ASSERT_TRUE(rig.files.RemoveFile(absl::StrCat(LogRig::kDirectory, "/", LogSegmentName(2))).ok());
  const absl::Status missing = read(LogRig::Identity());
  EXPECT_TRUE(absl::IsDataLoss(missing));
  EXPECT_THAT(std::string(missing.message()), HasSubstr(LogSegmentName(2)));
}

TEST(LogThreadTest, WritesInTheBackgroundAndRetries) {
  LogRig rig;
  auto log = *rig.Open();
  ManualClock clock;
  Mutex mutex;
  std::vector<std::string> told;
  std::atomic<int> writes{0};
  std::atomic<bool> full{false};
  rig.files.SetFaultHook([&](Operation operation, const std::string&) -> std::optional<Fault> {
    if (operation != Operation::kWrite) return std::nullopt;
    ++writes;
    return full ? std::optional<Fault>(Fault{ENOSPC, 7}) : std::nullopt;
  });
  {
    LogThread thread(log.get(), &clock, [&](absl::string_view sentence) {
      MutexLock lock(&mutex);
      told.emplace_back(sentence);
    });
    std::atomic<int> durable{0};
    LogRig::Append(log.get(), "one");
    if (log->WhenDurable([&] { ++durable; }) == 0) ++durable;
    ASSERT_TRUE(Eventually([&] { return durable == 1; }));
    full = true;
    LogRig::Append(log.get(), "two");
    log->WhenDurable([&] { ++durable; });
    ASSERT_TRUE(Eventually([&] {
      MutexLock lock(&mutex);
      return told.size() == 1;
    }));
    const int tries = writes;
    clock.Advance(absl::Milliseconds(1100));
    ASSERT_TRUE(Eventually([&] { return writes > tries; }));
    EXPECT_EQ(durable, 1);
    full = false;
    clock.Advance(absl::Milliseconds(1100));
    ASSERT_TRUE(Eventually([&] { return durable == 2; }));
    ASSERT_TRUE(Eventually([&] {
      MutexLock lock(&mutex);
      return told.size() == 2;
    }));
    LogRig::Append(log.get(), "three");
  }
  EXPECT_THAT(told, ElementsAre(HasSubstr("No space left"), HasSubstr("works again")));
  log.reset();
  ASSERT_TRUE(rig.Read().ok());
  EXPECT_THAT(rig.payloads, ElementsAre("one", "two", "three")) << "Stop writes the rest";
}

TEST(LogThreadTest, NotifiesEachOfSeveralAppenders) {
  LogRig rig;
  auto log = *rig.Open(/*buffer_bytes=*/4096);
  ManualClock clock;
  constexpr int kThreads = 4;
  constexpr int kRecords = 200;
  std::atomic<int> durable{0};
  {
    LogThread thread(log.get(), &clock, [](absl::string_view) {});
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kRecords; ++i) {
          LogRig::Append(log.get(), absl::StrCat(t, " ", i));
          if (log->WhenDurable([&] { ++durable; }) == 0) ++durable;
          if (i % 50 == 0) log->Rotate();
        }
      });
    }
    for (std::thread& one : threads) one.join();
    EXPECT_TRUE(Eventually([&] { return durable == kThreads * kRecords; }));
  }
  log.reset();
  ASSERT_TRUE(rig.Read().ok());
  EXPECT_EQ(rig.payloads.size(), static_cast<size_t>(kThreads * kRecords));
}

}  // namespace
}  // namespace torchps
