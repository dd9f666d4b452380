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

// Two images of 2 x 3 pixels, and the labels.
const std::string kImages(
    "\x00\x00\x08\x03\x00\x00\x00\x02\x00\x00\x00\x02\x00\x00\x00\x03"
    "\x01\x02\x03\x04\x05\x06\x0a\x0b\x0c\x0d\x0e\xff",
    28);
const std::string kLabels("\x00\x00\x08\x01\x00\x00\x00\x02\x07\x00", 10);

class IdxTest : public ::testing::Test {
 protected:
  absl::StatusOr<ImageSet> Read(const std::string& images, const std::string& labels) {
    return ReadIdxImages(WriteFile(directory_, "images", images),
                         WriteFile(directory_, "labels", labels));
  }

  const std::string directory_ = NewDirectory();
};

TEST_F(IdxTest, ReadsImagesAndLabels) {
  const auto set = Read(kImages, kLabels);
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->size(), 2);
  EXPECT_EQ(set->channels, 1);
  EXPECT_EQ(set->height, 2);
  EXPECT_EQ(set->width, 3);
  EXPECT_THAT(set->pixels, ElementsAre(1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 14, 255));
  EXPECT_THAT(set->labels, ElementsAre(7, 0));
}

TEST_F(IdxTest, ReadsGzipAndPlainSideBySide) {
  WriteFile(directory_, "train-images-idx3-ubyte.gz", Gzip(kImages));
  WriteFile(directory_, "train-labels-idx1-ubyte", kLabels);
  const auto set = ReadIdxDirectory(directory_, "train");
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_THAT(set->labels, ElementsAre(7, 0));
}

TEST_F(IdxTest, ErrorNamesTheMissingFileAndTheRemedy) {
  WriteFile(directory_, "train-images-idx3-ubyte", kImages);
  const absl::Status status = ReadIdxDirectory(directory_, "train").status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory_));
  EXPECT_THAT(std::string(status.message()), HasSubstr("train-labels-idx1-ubyte.gz"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--download"));
}

TEST_F(IdxTest, ATruncatedFileIsDataLoss) {
  for (size_t length = 0; length < kImages.size(); ++length) {
    const absl::Status status = Read(kImages.substr(0, length), kLabels).status();
    ASSERT_TRUE(absl::IsDataLoss(status)) << length << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("/images: expected"));
  }
  for (size_t length = 0; length < kLabels.size(); ++length) {
    const absl::Status status = Read(kImages, kLabels.substr(0, length)).status();
    ASSERT_TRUE(absl::IsDataLoss(status)) << length << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("/labels: expected"));
  }
}

TEST_F(IdxTest, TrailingBytesAreDataLoss) {
  EXPECT_TRUE(absl::IsDataLoss(Read(kImages + '\0', kLabels).status()));
  EXPECT_TRUE(absl::IsDataLoss(Read(kImages, kLabels + '\0').status()));
}

TEST_F(IdxTest, ErrorNamesAWrongMagicNumber) {
  const absl::Status labels = Read(kLabels + "another ten", kLabels).status();
  EXPECT_TRUE(absl::IsDataLoss(labels));
  EXPECT_THAT(std::string(labels.message()), HasSubstr("0x00000803, got 0x00000801"));
  std::string floats = kImages;
  floats[2] = 0x0d;
  const absl::Status status = Read(floats, kLabels).status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("0x00000d03"));
}

TEST_F(IdxTest, AWrongLabelCountIsDataLoss) {
  const std::string three("\x00\x00\x08\x01\x00\x00\x00\x03\x07\x00\x01", 11);
  const absl::Status status = Read(kImages, three).status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected 2 labels"));
}

TEST_F(IdxTest, RejectsSizesThatOverflow) {
  const std::string huge("\x00\x00\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16);
  EXPECT_TRUE(absl::IsInvalidArgument(Read(huge, kLabels).status()));
  const std::string many("\x00\x00\x08\x03\xff\xff\xff\xff\x00\x00\x10\x00\x00\x00\x10\x00", 16);
  EXPECT_TRUE(absl::IsDataLoss(Read(many, kLabels).status()));
  const std::string flat("\x00\x00\x08\x03\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x03", 16);
  EXPECT_TRUE(absl::IsInvalidArgument(Read(flat, kLabels).status()));
}

TEST_F(IdxTest, RejectsAnEmptySet) {
  const std::string none("\x00\x00\x08\x03\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x03", 16);
  const std::string no_labels("\x00\x00\x08\x01\x00\x00\x00\x00", 8);
  EXPECT_TRUE(absl::IsInvalidArgument(Read(none, no_labels).status()));
}

}  // namespace
}  // namespace torchps
