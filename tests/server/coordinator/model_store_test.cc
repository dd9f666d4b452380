#include "torchps/server/coordinator/model_store.h"

#include <cerrno>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/faulty_file_system.h"
#include "torchps/checkpoint/safetensors.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns a safetensors file with these tensors, filled with `value`.
std::string GetFileOf(std::vector<TensorInfo> tensors, float value, const std::string& score = "") {
  SafetensorsHeader header;
  header.tensors = std::move(tensors);
  if (!score.empty()) header.metadata["score"] = score;
  const std::string json = FormatSafetensorsHeader(header);
  const uint64_t length = json.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  file += json;
  for (int64_t i = 0; i < header.tensors.back().end; i += 4) {
    file.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return file;
}

// Returns a model file of the job: one tensor that contains only `value`.
std::string GetFile(float value, const std::string& score) {
  return GetFileOf({{"w", Dtype::kF32, {1}, 0, 4}}, value, score);
}

// Returns a file of the job's constants.
std::string GetConstants() { return GetFileOf({{"frozen", Dtype::kF32, {2}, 0, 8}}, 3); }

class ModelStoreTest : public ::testing::Test {
 protected:
  ModelStoreTest() {
    EXPECT_TRUE(files_.CreateDirectories("dir").ok());
    Restart();
  }

  void Restart(const std::string& model_directory = "dir", bool continues = true) {
    store_.reset();
    ModelStore::Options options;
    options.files = &files_;
    options.directory = "dir";
    options.model_directory = model_directory;
    options.continues = continues;
    options.stored = [this](const std::string& name) { stored_ = name; };
    store_ = std::make_unique<ModelStore>(std::move(options));
  }

  static StoreModelRequest Piece(ModelFile file, const std::string& whole, size_t begin,
                                 size_t size, SlotId slot = 0, Incarnation incarnation = 7) {
    StoreModelRequest piece;
    piece.set_slot(slot);
    piece.set_incarnation(incarnation);
    piece.set_file(file);
    piece.set_bytes(static_cast<int64_t>(whole.size()));
    piece.set_offset(static_cast<int64_t>(begin));
    piece.set_data(whole.substr(begin, size));
    return piece;
  }

  std::future<absl::Status> Receive(StoreModelRequest piece) {
    const auto answer = std::make_shared<std::promise<absl::Status>>();
    store_->Receive(std::make_shared<StoreModelRequest>(std::move(piece)), limits_,
                    [answer](const absl::StatusOr<StoreModelReply>& reply) {
                      answer->set_value(reply.status());
                    });
    return answer->get_future();
  }

  absl::Status Send(ModelFile file, const std::string& whole, size_t begin, size_t size,
                    SlotId slot = 0, Incarnation incarnation = 7) {
    return Receive(Piece(file, whole, begin, size, slot, incarnation)).get();
  }

  absl::Status Publish(SlotId slot, std::optional<double> score) {
    std::promise<absl::Status> done;
    store_->PublishBest(slot, score, [&](const absl::Status& status) { done.set_value(status); });
    return done.get_future().get();
  }

  // Waits until all tasks so far are done.
  void Flush() { EXPECT_TRUE(Publish(/*slot=*/4000, std::nullopt).ok()); }

  absl::Status SendAll(ModelFile file, const std::string& whole, SlotId slot = 0) {
    absl::Status status;
    for (size_t begin = 0; begin < whole.size() && status.ok(); begin += 10) {
      status = Send(file, whole, begin, 10, slot);
    }
    return status;
  }

  std::optional<std::string> Kept(const std::string& name) {
    const auto contents = ReadWholeFile(files_, "dir/" + name, 1 << 20);
    return contents.ok() ? std::optional<std::string>(*contents) : std::nullopt;
  }

  FaultyFileSystem files_;
  // The state has one tensor of the layout, and 8 bytes of constants.
  const std::shared_ptr<const ModelLimits> limits_ = std::make_shared<ModelLimits>(
      ModelLimits{*ModelLayout::Create({Segment{"w", {1}}}), /*state_bytes=*/12});
  std::string stored_;
  std::unique_ptr<ModelStore> store_;
};

TEST_F(ModelStoreTest, StoresAFileWithItsLastPiece) {
  const std::string model = GetFile(1, "0.5");
  for (size_t begin = 0; begin < model.size(); begin += 10) {
    EXPECT_EQ(Kept("model.safetensors"), std::nullopt) << "at " << begin;
    ASSERT_TRUE(Send(MODEL_FINAL, model, begin, 10).ok());
  }
  EXPECT_EQ(Kept("model.safetensors"), model);
  ASSERT_TRUE(SendAll(MODEL_CONSTANTS, GetConstants()).ok());
  EXPECT_EQ(Kept("constants.safetensors"), GetConstants());
}

TEST_F(ModelStoreTest, StoresModelsAndConstantsInSeparateDirectories) {
  ASSERT_TRUE(files_.CreateDirectories("dir/models").ok());
  Restart("dir/models");
  const std::string model = GetFile(1, "0.5");
  ASSERT_TRUE(SendAll(MODEL_CONSTANTS, GetConstants()).ok());
  ASSERT_TRUE(SendAll(MODEL_FINAL, model).ok());
  EXPECT_EQ(Kept("constants.safetensors"), GetConstants());
  EXPECT_EQ(Kept("models/model.safetensors"), model);
  EXPECT_EQ(stored_, "constants.safetensors") << "copies cover only this directory";
}

TEST_F(ModelStoreTest, AppliesARepeatedPieceOnce) {
  const std::string model = GetFile(1, "0.5");
  ASSERT_TRUE(Send(MODEL_FINAL, model, 0, 10).ok());
  ASSERT_TRUE(Send(MODEL_FINAL, model, 10, 10).ok());
  ASSERT_TRUE(Send(MODEL_FINAL, model, 10, 10).ok()) << "its answer was lost";
  ASSERT_TRUE(Send(MODEL_FINAL, model, 20, model.size()).ok());
  EXPECT_EQ(Kept("model.safetensors"), model);
  ASSERT_TRUE(Send(MODEL_FINAL, model, 20, model.size()).ok()) << "its answer was lost";
  EXPECT_EQ(Kept("model.safetensors"), model);
}

TEST_F(ModelStoreTest, AfterAServerRestartTheUploadMustBeginAgain) {
  const std::string model = GetFile(1, "0.5");
  ASSERT_TRUE(Send(MODEL_FINAL, model, 0, 10).ok());
  Restart();
  EXPECT_TRUE(absl::IsOutOfRange(Send(MODEL_FINAL, model, 10, 10)));
  EXPECT_EQ(files_.List("dir")->size(), 0u) << "leftovers of the upload are removed";
  ASSERT_TRUE(SendAll(MODEL_FINAL, model).ok());
  EXPECT_EQ(Kept("model.safetensors"), model);
}

TEST_F(ModelStoreTest, ASuccessorCannotContinueItsPredecessorsUpload) {
  const std::string model = GetFile(1, "0.5");
  ASSERT_TRUE(Send(MODEL_FINAL, model, 0, 10, 0, /*incarnation=*/7).ok());
  EXPECT_TRUE(absl::IsOutOfRange(Send(MODEL_FINAL, model, 10, 10, 0, /*incarnation=*/8)));
}

TEST_F(ModelStoreTest, KeepsTheModelWithTheBestScoreInAnyOrderOfUploads) {
  const std::string good = GetFile(1, "0.9");
  const std::string poor = GetFile(2, "0.8");
  const std::string better = GetFile(3, "0.95");
  ASSERT_TRUE(SendAll(MODEL_BEST, good, 0).ok());
  EXPECT_EQ(Kept("best.safetensors"), std::nullopt) << "its score is not reported yet";
  EXPECT_TRUE(Publish(0, 0.9).ok());
  EXPECT_EQ(Kept("best.safetensors"), good);
  ASSERT_TRUE(SendAll(MODEL_BEST, poor, 1).ok());
  EXPECT_TRUE(Publish(1, 0.8).ok());
  EXPECT_EQ(Kept("best.safetensors"), good);
  ASSERT_TRUE(SendAll(MODEL_BEST, better, 1).ok());
  EXPECT_TRUE(Publish(1, 0.95).ok());
  EXPECT_EQ(Kept("best.safetensors"), better);
  EXPECT_EQ(stored_, "best.safetensors");
  EXPECT_TRUE(Publish(1, 0.97).ok()) << "a report without an upload";
  EXPECT_THAT(*files_.List("dir"), ElementsAre("best.safetensors"));
}

TEST_F(ModelStoreTest, AModelWithAnotherScoreThanTheReportIsDropped) {
  const std::string good = GetFile(1, "0.9");
  ASSERT_TRUE(SendAll(MODEL_BEST, good).ok());
  ASSERT_TRUE(Publish(0, 0.9).ok());
  for (const std::string claimed : {"1e308", "inf", "nan", ""}) {
    ASSERT_TRUE(SendAll(MODEL_BEST, GetFile(2, claimed)).ok());
    const absl::Status dropped = Publish(0, 0.95);
    EXPECT_TRUE(absl::IsInvalidArgument(dropped)) << dropped;
    EXPECT_THAT(std::string(dropped.message()), HasSubstr("but reported score 0.95"));
    ASSERT_TRUE(SendAll(MODEL_BEST, GetFile(2, claimed)).ok());
    EXPECT_TRUE(absl::IsInvalidArgument(Publish(0, std::nullopt)));
    EXPECT_EQ(Kept("best.safetensors"), good);
    EXPECT_THAT(*files_.List("dir"), ElementsAre("best.safetensors"));
  }
}

TEST_F(ModelStoreTest, ABestModelWaitsForTheReportAcrossARestart) {
  const std::string best = GetFile(1, "0.9");
  ASSERT_TRUE(SendAll(MODEL_BEST, best).ok());
  Restart();
  EXPECT_TRUE(Publish(0, 0.9).ok());
  EXPECT_EQ(Kept("best.safetensors"), best);
  ASSERT_TRUE(SendAll(MODEL_BEST, GetFile(2, "0.95")).ok());
  Restart("dir", /*continues=*/false);
  EXPECT_THAT(*files_.List("dir"), ElementsAre("best.safetensors")) << "of a job that is resumed";
}

TEST_F(ModelStoreTest, TheFilesOfAnEndedIncarnationAreRemoved) {
  const std::string model = GetFile(1, "0.9");
  ASSERT_TRUE(SendAll(MODEL_BEST, model, 0).ok());
  ASSERT_TRUE(Send(MODEL_FINAL, model, 0, 10, 0).ok());
  ASSERT_TRUE(Send(MODEL_CONSTANTS, GetConstants(), 0, 10, 0).ok());
  ASSERT_TRUE(Send(MODEL_FINAL, model, 0, 10, 1).ok());
  store_->Forget(0);
  Flush();
  EXPECT_THAT(*files_.List("dir"), ElementsAre("model.safetensors.slot-1.part"));
  EXPECT_TRUE(absl::IsOutOfRange(Send(MODEL_FINAL, model, 10, 10, 0)));
}

TEST_F(ModelStoreTest, RefusesAFileThatIsLargerThanTheJobsModel) {
  StoreModelRequest piece = Piece(MODEL_FINAL, GetFile(1, ""), 0, 10);
  piece.set_bytes(2 * 12 + (64 << 20) + 1);
  const absl::Status refused = Receive(piece).get();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("expected at most 67108888"));
  EXPECT_THAT(*files_.List("dir"), IsEmpty());
  piece.set_bytes(piece.bytes() - 1);
  EXPECT_TRUE(Receive(piece).get().ok());
}

TEST_F(ModelStoreTest, RefusesTensorsThatAreNotTheJobs) {
  const std::string before = GetFile(1, "");
  ASSERT_TRUE(SendAll(MODEL_FINAL, before).ok());
  ASSERT_TRUE(SendAll(MODEL_CONSTANTS, GetConstants()).ok());
  const std::vector<std::pair<std::vector<TensorInfo>, std::string>> wrong = {
      {{{"v", Dtype::kF32, {1}, 0, 4}}, "lacks 'w'"},
      {{{"w", Dtype::kF32, {2}, 0, 8}}, "has shape [2]; expected [1] in F32"},
      {{{"w", Dtype::kI32, {1}, 0, 4}}, "has shape [1], not in F32; expected [1] in F32"},
  };
  for (const auto& [tensors, message] : wrong) {
    const absl::Status refused = SendAll(MODEL_FINAL, GetFileOf(tensors, 2));
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(message));
  }
  const absl::Status refused = SendAll(MODEL_CONSTANTS, GetFile(2, ""));
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("'w', which servers hold"));
  EXPECT_EQ(Kept("model.safetensors"), before);
  EXPECT_EQ(Kept("constants.safetensors"), GetConstants());
  const std::string with_constants =
      GetFileOf({{"w", Dtype::kF32, {1}, 0, 4}, {"frozen", Dtype::kF32, {2}, 4, 12}}, 2);
  EXPECT_TRUE(SendAll(MODEL_FINAL, with_constants).ok());
}

TEST_F(ModelStoreTest, BoundsTheMemoryOfWaitingPieces) {
  const std::string model = GetFile(1, "");
  StoreModelRequest large = Piece(MODEL_FINAL, model, 0, 1);
  large.set_data(std::string(ModelStore::kMaxPieceBytes + 1, 'x'));
  large.set_bytes(16 << 20);
  EXPECT_TRUE(absl::IsInvalidArgument(Receive(large).get()));
  large.mutable_data()->pop_back();

  std::promise<void> arrived, release;
  std::future<void> released = release.get_future();
  files_.SetFaultHook([&](FaultyFileSystem::Operation operation,
                          const std::string& path) -> std::optional<FaultyFileSystem::Fault> {
    if (operation != FaultyFileSystem::Operation::kCreate || path.find("slot-0") == path.npos) {
      return std::nullopt;
    }
    arrived.set_value();
    released.wait();
    return std::nullopt;
  });
  std::future<absl::Status> first = Receive(Piece(MODEL_FINAL, model, 0, 10));
  arrived.get_future().wait();
  constexpr int kFit = ModelStore::kMaxWaitingBytes / ModelStore::kMaxPieceBytes;
  std::vector<std::future<absl::Status>> fitting;
  for (int slot = 1; slot <= kFit; ++slot) {
    large.set_slot(slot);
    fitting.push_back(Receive(large));
  }
  large.set_slot(kFit + 1);
  std::future<absl::Status> refused = Receive(large);
  large.set_slot(1);
  std::future<absl::Status> repeated = Receive(large);
  release.set_value();
  EXPECT_TRUE(BusyWith(refused.get()).has_value()) << "the client tries again";
  EXPECT_TRUE(absl::IsCancelled(fitting.front().get())) << "one piece of a slot waits";
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(repeated.get().ok());
  for (size_t i = 1; i < fitting.size(); ++i) EXPECT_TRUE(fitting[i].get().ok());
  large.set_slot(kFit + 1);
  EXPECT_TRUE(Receive(large).get().ok());
}

TEST_F(ModelStoreTest, ConcurrentUploadsDoNotInterfere) {
  const std::string first = GetFile(1, "0.9");
  const std::string second = GetFile(2, "0.8");
  ASSERT_TRUE(Send(MODEL_BEST, first, 0, 10, 0).ok());
  ASSERT_TRUE(Send(MODEL_BEST, second, 0, 10, 1).ok());
  ASSERT_TRUE(Send(MODEL_BEST, first, 10, first.size(), 0).ok());
  ASSERT_TRUE(Send(MODEL_BEST, second, 10, second.size(), 1).ok());
  ASSERT_TRUE(Publish(1, 0.8).ok());
  ASSERT_TRUE(Publish(0, 0.9).ok());
  EXPECT_EQ(Kept("best.safetensors"), first);
}

TEST_F(ModelStoreTest, RejectsAnInvalidFileAndKeepsThePrevious) {
  const std::string model = GetFile(1, "0.5");
  ASSERT_TRUE(SendAll(MODEL_FINAL, model).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(SendAll(MODEL_FINAL, std::string(100, 'x'))));
  EXPECT_EQ(Kept("model.safetensors"), model);
  EXPECT_TRUE(absl::IsInvalidArgument(SendAll(MODEL_FILE_UNSPECIFIED, model)));
  StoreModelRequest outside;
  EXPECT_TRUE(absl::IsInvalidArgument(Send(MODEL_FINAL, "", 0, 0)));
}

TEST_F(ModelStoreTest, KeepsThePreviousFileOnDiskErrors) {
  const std::string before = GetFile(1, "0.5");
  const std::string after = GetFile(2, "0.6");
  ASSERT_TRUE(SendAll(MODEL_FINAL, before).ok());
  for (const auto operation :
       {FaultyFileSystem::Operation::kCreate, FaultyFileSystem::Operation::kWrite,
        FaultyFileSystem::Operation::kSync, FaultyFileSystem::Operation::kRename}) {
    files_.SetFaultHook([operation](FaultyFileSystem::Operation asked, const std::string&) {
      return asked == operation ? std::optional<FaultyFileSystem::Fault>({ENOSPC, 0})
                                : std::nullopt;
    });
    EXPECT_FALSE(SendAll(MODEL_FINAL, after).ok());
    files_.SetFaultHook(nullptr);
    EXPECT_EQ(Kept("model.safetensors"), before);
    EXPECT_EQ(files_.List("dir")->size(), 1u) << "the upload is removed";
  }
  ASSERT_TRUE(SendAll(MODEL_FINAL, after).ok());
  EXPECT_EQ(Kept("model.safetensors"), after);
}

TEST_F(ModelStoreTest, AnswersUnavailableAfterStop) {
  store_->Stop();
  EXPECT_TRUE(absl::IsUnavailable(Send(MODEL_FINAL, GetFile(1, ""), 0, 10)));
  EXPECT_TRUE(absl::IsUnavailable(Publish(0, 0.5)));
}

}  // namespace
}  // namespace torchps
