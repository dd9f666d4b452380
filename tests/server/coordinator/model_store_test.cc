#include "server/coordinator/model_store.h"

#include <cerrno>
#include <future>
#include <optional>
#include <string>

#include "checkpoint/safetensors.h"
#include "gtest/gtest.h"
#include "tests/testing/faulty_file_system.h"

namespace torchps {
namespace {

// Returns a safetensors file with one tensor that contains only `value`.
std::string GetFile(float value, const std::string& score) {
  SafetensorsHeader header;
  header.tensors.push_back({"w", Dtype::kF32, {1}, 0, 4});
  if (!score.empty()) header.metadata["score"] = score;
  const std::string json = FormatSafetensorsHeader(header);
  const uint64_t length = json.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  file += json;
  file.append(reinterpret_cast<const char*>(&value), sizeof(value));
  return file;
}

class ModelStoreTest : public ::testing::Test {
 protected:
  ModelStoreTest() {
    EXPECT_TRUE(files_.CreateDirectories("dir").ok());
    Restart();
  }

  void Restart(const std::string& model_directory = "dir") {
    store_.reset();
    store_ = std::make_unique<ModelStore>(&files_, "dir", model_directory,
                                          [this](const std::string& name) { stored_ = name; });
  }

  absl::Status Send(ModelFile file, const std::string& whole, size_t begin, size_t size,
                    SlotId slot = 0, Incarnation incarnation = 7) {
    StoreModelRequest piece;
    piece.set_slot(slot);
    piece.set_incarnation(incarnation);
    piece.set_file(file);
    piece.set_bytes(static_cast<int64_t>(whole.size()));
    piece.set_offset(static_cast<int64_t>(begin));
    piece.set_data(whole.substr(begin, size));
    std::promise<absl::Status> answer;
    store_->Receive(piece, [&](const absl::StatusOr<StoreModelReply>& reply) {
      answer.set_value(reply.status());
    });
    return answer.get_future().get();
  }

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
  ASSERT_TRUE(SendAll(MODEL_CONSTANTS, model).ok());
  EXPECT_EQ(Kept("constants.safetensors"), model);
}

TEST_F(ModelStoreTest, StoresModelsAndConstantsInSeparateDirectories) {
  ASSERT_TRUE(files_.CreateDirectories("dir/models").ok());
  Restart("dir/models");
  const std::string model = GetFile(1, "0.5");
  ASSERT_TRUE(SendAll(MODEL_CONSTANTS, model).ok());
  ASSERT_TRUE(SendAll(MODEL_FINAL, model).ok());
  EXPECT_EQ(Kept("constants.safetensors"), model);
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
  ASSERT_TRUE(SendAll(MODEL_BEST, poor, 1).ok());
  EXPECT_EQ(Kept("best.safetensors"), good);
  ASSERT_TRUE(SendAll(MODEL_BEST, better, 1).ok());
  EXPECT_EQ(Kept("best.safetensors"), better);
}

TEST_F(ModelStoreTest, ConcurrentUploadsDoNotInterfere) {
  const std::string first = GetFile(1, "0.9");
  const std::string second = GetFile(2, "0.8");
  ASSERT_TRUE(Send(MODEL_BEST, first, 0, 10, 0).ok());
  ASSERT_TRUE(Send(MODEL_BEST, second, 0, 10, 1).ok());
  ASSERT_TRUE(Send(MODEL_BEST, first, 10, first.size(), 0).ok());
  ASSERT_TRUE(Send(MODEL_BEST, second, 10, second.size(), 1).ok());
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
}

}  // namespace
}  // namespace torchps
