#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/data/test_files.h"
#include "torchps/data/image/image_sets.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns a record with constant red, green and blue planes.
std::string Record(char label, char red, char green, char blue) {
  return std::string(1, label) + std::string(1024, red) + std::string(1024, green) +
         std::string(1024, blue);
}

TEST(Cifar10Test, ReadsTheFiveTrainingFilesInOrder) {
  const std::string directory = NewDirectory();
  for (char batch = 1; batch <= 5; ++batch) {
    WriteFile(directory, "data_batch_" + std::to_string(batch) + ".bin",
              Record(batch, 10 * batch, 0, 0) + Record(9, 1, 2, batch));
  }
  const auto set = ReadCifar10Train(directory);
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_THAT(set->labels, ElementsAre(1, 9, 2, 9, 3, 9, 4, 9, 5, 9));
  EXPECT_EQ(set->image_bytes(), 3 * 32 * 32);
  ASSERT_EQ(set->pixels.size(), 10u * 3072);
  EXPECT_EQ(set->pixels[2 * 3072], 20);        // third image, red
  EXPECT_EQ(set->pixels[9 * 3072 + 1024], 2);  // last image, green
  EXPECT_EQ(set->pixels[9 * 3072 + 3 * 1024 - 1], 5);
}

TEST(Cifar10Test, ErrorNamesTheMissingFileAndTheRemedy) {
  const std::string directory = NewDirectory();
  const absl::Status status = ReadCifar10Test(directory).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("test_batch.bin"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("cifar-10-batches-bin"));
}

TEST(Cifar10Test, ATruncatedRecordIsDataLoss) {
  const std::string directory = NewDirectory();
  const std::string record = Record(3, 1, 2, 3);
  for (size_t length = 0; length < record.size(); length += 64) {
    WriteFile(directory, "test_batch.bin", record.substr(0, length));
    ASSERT_TRUE(absl::IsDataLoss(ReadCifar10Test(directory).status())) << length;
  }
  WriteFile(directory, "test_batch.bin", record + record.substr(0, 100));
  EXPECT_TRUE(absl::IsDataLoss(ReadCifar10Test(directory).status()));
}

TEST(Cifar10Test, ErrorNamesTheRecordOfAnInvalidLabel) {
  const std::string directory = NewDirectory();
  WriteFile(directory, "test_batch.bin", Record(9, 0, 0, 0) + Record(10, 0, 0, 0));
  const absl::Status status = ReadCifar10Test(directory).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("test_batch.bin: record 1: expected a label of 0 to 9, got 10"));
}

}  // namespace
}  // namespace torchps
