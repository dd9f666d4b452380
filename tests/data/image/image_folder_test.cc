#include "torchps/data/image/image_folder.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/data/image/encode_images.h"
#include "tests/data/test_files.h"

namespace torchps {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ImageFolderTest : public ::testing::Test {
 protected:
  // Writes a file. Most tests use only the names.
  void Put(const std::string& path, const std::string& bytes = "") {
    const std::filesystem::path file(directory_ + "/" + path);
    std::filesystem::create_directories(file.parent_path());
    WriteFile(file.parent_path(), file.filename(), bytes);
  }

  void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& part) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(directory_), HasSubstr(part)));
  }

  const std::string directory_ = NewDirectory();
};

TEST_F(ImageFolderTest, SortsClassesAndFilesByName) {
  for (const char* path : {"b/2.png", "b/10.JPG", "a b/x.jpeg", "C/y.Png", "b/notes.txt",
                           "b/.DS_Store", ".hidden/z.png", "readme.txt"}) {
    Put(path);
  }
  const auto folder = ReadImageFolder(directory_);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_THAT(folder->classes, ElementsAre("C", "a b", "b"));
  ASSERT_EQ(folder->size(), 4);
  EXPECT_EQ(folder->MakePath(0), directory_ + "/C/y.Png");
  EXPECT_EQ(folder->MakePath(1), directory_ + "/a b/x.jpeg");
  EXPECT_EQ(folder->MakePath(2), directory_ + "/b/10.JPG");
  EXPECT_EQ(folder->MakePath(3), directory_ + "/b/2.png");
  EXPECT_EQ(folder->files[3].label, 2);
}

TEST_F(ImageFolderTest, ALimitKeepsTheClassProportions) {
  for (int i = 0; i < 10; ++i) {
    Put("a/" + std::to_string(i) + ".png");
    Put("b/" + std::to_string(i) + ".png");
  }
  auto folder = ReadImageFolder(directory_);
  ASSERT_TRUE(folder.ok());
  folder->Limit(4);
  ASSERT_EQ(folder->size(), 4);
  EXPECT_EQ(folder->files[1].label, 0);
  EXPECT_EQ(folder->files[2].label, 1);
  folder->Limit(0);
  folder->Limit(9);
  EXPECT_EQ(folder->size(), 4);
}

TEST_F(ImageFolderTest, ErrorNamesAFolderWithoutClassesOrImages) {
  ExpectError(ReadImageFolder(directory_ + "/none").status(), absl::StatusCode::kNotFound, "/none");
  ExpectError(ReadImageFolder(directory_).status(), absl::StatusCode::kInvalidArgument, "got 0");
  Put("one/x.png");
  ExpectError(ReadImageFolder(directory_).status(), absl::StatusCode::kInvalidArgument, "got 1");
  Put("two/x.txt");
  ExpectError(ReadImageFolder(directory_).status(), absl::StatusCode::kInvalidArgument,
              "/two: expected at least one .jpg or .png file");
  Put("two/x.webp");
  ExpectError(ReadImageFolder(directory_).status(), absl::StatusCode::kInvalidArgument,
              "/two/x.webp: expected JPEG or PNG");
  Put("one/deeper/x.png");
  ExpectError(ReadImageFolder(directory_).status(), absl::StatusCode::kInvalidArgument,
              "/one/deeper: expected image files");
}

TEST_F(ImageFolderTest, FindsTheTestSetInTestOrVal) {
  for (const char* path : {"train/a/1.png", "train/b/1.png"}) Put(path);
  const auto train = ReadImageFolder(directory_ + "/train");
  ASSERT_TRUE(train.ok());
  ExpectError(ReadTestImageFolder(directory_).status(), absl::StatusCode::kNotFound,
              "expected test/ or val/ next to train/");
  Put("val/a/2.png");
  Put("val/b/2.png");
  EXPECT_EQ(ReadTestImageFolder(directory_)->directory, directory_ + "/val");
  // test/ has no class folders, so it gives no labels, and val/ is used.
  Put("test/3.png");
  EXPECT_EQ(ReadTestImageFolder(directory_)->directory, directory_ + "/val");
  Put("test/a/3.png");
  Put("test/c/3.png");
  ExpectError(CheckSameClasses(*train, *ReadTestImageFolder(directory_)),
              absl::StatusCode::kInvalidArgument, "/train, got another, \"c\"");
  std::filesystem::remove_all(directory_ + "/val/b");
  std::filesystem::remove_all(directory_ + "/test");
  Put("train/c/1.png");
  Put("val/c/1.png");
  ExpectError(
      CheckSameClasses(*ReadImageFolder(directory_ + "/train"), *ReadTestImageFolder(directory_)),
      absl::StatusCode::kInvalidArgument, "/train, got none named \"b\"");
}

TEST_F(ImageFolderTest, CountsSkippedFilesAndRejectsUnsupportedImages) {
  for (const char* path : {"a/1.JFIF", "a/2.jpe", "a/3.pjpeg", "b/1.png", "a/Thumbs.db", "b/notes",
                           "c.txt", "__MACOSX/a/1.png", "a/.hidden"}) {
    Put(path);
  }
  const auto folder = ReadImageFolder(directory_);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_THAT(folder->classes, ElementsAre("a", "b"));
  EXPECT_THAT(folder->Names(), ElementsAre("a/1.JFIF", "a/2.jpe", "a/3.pjpeg", "b/1.png"));
  EXPECT_EQ(folder->passed_over, 3);
  for (const char* other : {"2.ppm", "2.PGM", "2.svg", "2.tiff"}) {
    const std::string path = absl::StrCat("b/", other);
    Put(path);
    ExpectError(ReadImageFolder(directory_).status(), absl::StatusCode::kInvalidArgument,
                path + ": expected JPEG or PNG images");
    std::filesystem::remove(directory_ + "/" + path);
  }
}

TEST_F(ImageFolderTest, SortsUnlabelledImagesByPath) {
  for (const char* path : {"a/2.png", "a/1.jpg", "a.png", "b/c/1.png", "b/notes.txt"}) Put(path);
  std::filesystem::create_directory_symlink("..", directory_ + "/a/circle");
  const auto folder = ReadUnlabelledImages(directory_);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_THAT(folder->Names(), ElementsAre("a.png", "a/1.jpg", "a/2.png", "b/c/1.png"));
  EXPECT_EQ(folder->passed_over, 2);
  EXPECT_EQ(folder->files[0].label, -1);
  const auto one = ReadUnlabelledImages(directory_ + "/a/2.png");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->MakePath(0), directory_ + "/a/2.png");
  Put("b/2.gif");
  for (const char* path : {"", "/b/2.gif"}) {
    ExpectError(ReadUnlabelledImages(directory_ + path).status(),
                absl::StatusCode::kInvalidArgument, "/b/2.gif: expected JPEG or PNG");
  }
  ExpectError(ReadUnlabelledImages(directory_ + "/b/notes.txt").status(),
              absl::StatusCode::kInvalidArgument, "/b/notes.txt: expected at least one");
  ExpectError(ReadUnlabelledImages(directory_ + "/none").status(), absl::StatusCode::kNotFound,
              "expected an image file or a folder");
}

TEST_F(ImageFolderTest, ReadsAnImageAsResizedPlanes) {
  Put("a/1.png", EncodePng(Flat(3, 5, {10, 20, 30}), 3, 5, 3));
  Put("b/1.jpg", "\xff\xd8\xff garbage");
  const auto folder = ReadImageFolder(directory_);
  ASSERT_TRUE(folder.ok());
  const ImageSize size{3, 4, 2};
  std::vector<uint8_t> planes(24);
  ASSERT_TRUE(LoadImage(*folder, 0, size, planes.data()).ok());
  EXPECT_THAT(std::vector<uint8_t>(planes.begin(), planes.begin() + 8), Each(10));
  EXPECT_THAT(std::vector<uint8_t>(planes.begin() + 16, planes.end()), Each(30));
  ExpectError(LoadImage(*folder, 1, size, planes.data()), absl::StatusCode::kDataLoss, "/b/1.jpg");
  std::filesystem::remove(directory_ + "/a/1.png");
  ExpectError(LoadImage(*folder, 0, size, planes.data()), absl::StatusCode::kNotFound, "/a/1.png");
}

}  // namespace
}  // namespace torchps
