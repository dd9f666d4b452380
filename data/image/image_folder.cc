#include "data/image/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/file/file_bytes.h"
#include "data/image/resize_image.h"

namespace torchps {
namespace {

namespace fs = std::filesystem;

// Far above what a camera makes.
constexpr int64_t kMostFileBytes = int64_t{256} << 20;

absl::Status SystemError(const fs::path& path, const std::error_code& error) {
  return absl::ErrnoToStatus(error.value(), path.string());
}

bool EndsInOneOf(const std::string& name, const std::vector<absl::string_view>& endings) {
  const std::string lower = absl::AsciiStrToLower(name);
  return std::any_of(endings.begin(), endings.end(),
                     [&](absl::string_view ending) { return absl::EndsWith(lower, ending); });
}

bool IsHidden(const std::string& name) { return absl::StartsWith(name, "."); }

// Names in `directory`, ordered by bytes, hidden ones left out.
absl::StatusOr<std::vector<std::string>> NamesIn(const fs::path& directory) {
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  std::vector<std::string> names;
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!IsHidden(name)) names.push_back(std::move(name));
  }
  if (error) return SystemError(directory, error);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status AddClass(const fs::path& directory, ImageFolder& folder) {
  const absl::StatusOr<std::vector<std::string>> names = NamesIn(directory);
  if (!names.ok()) return names.status();
  const auto label = static_cast<int32_t>(folder.classes.size());
  const int64_t before = folder.size();
  for (const std::string& name : *names) {
    std::error_code error;
    if (fs::is_directory(directory / name, error)) {
      return absl::InvalidArgumentError(
          absl::StrCat((directory / name).string(),
                       ": expected image files in a class's folder, got a folder below it"));
    }
    if (EndsInOneOf(name, {".bmp", ".gif", ".tif", ".tiff", ".webp", ".heic", ".avif"})) {
      return absl::InvalidArgumentError(
          absl::StrCat((directory / name).string(),
                       ": expected JPEG or PNG images, got another kind (convert "
                       "it, or move it away)"));
    }
    if (EndsInOneOf(name, {".jpg", ".jpeg", ".png"})) folder.files.push_back({name, label});
  }
  if (folder.size() == before) {
    return absl::InvalidArgumentError(absl::StrCat(
        directory.string(), ": expected at least one .jpg or .png file of the class, got none"));
  }
  folder.classes.push_back(directory.filename().string());
  return absl::OkStatus();
}

// The first of `names` that `others` lacks; null: none.
const std::string* FirstMissing(const std::vector<std::string>& names,
                                const std::vector<std::string>& others) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return !std::binary_search(others.begin(), others.end(), name);
  });
  return found == names.end() ? nullptr : &*found;
}

}  // namespace

std::string ImageFolder::PathOf(int64_t index) const {
  const File& file = files[index];
  return absl::StrCat(directory, "/", classes[file.label], "/", file.name);
}

void ImageFolder::Limit(int64_t samples) {
  if (samples <= 0 || samples >= size()) return;
  std::vector<File> kept;
  kept.reserve(samples);
  // size() is far below 2^31, samples below it.
  for (int64_t i = 0; i < samples; ++i) kept.push_back(files[i * size() / samples]);
  files = std::move(kept);
}

absl::StatusOr<ImageFolder> ReadImageFolder(const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = NamesIn(directory);
  if (absl::IsNotFound(names.status())) {
    return absl::NotFoundError(absl::StrCat(
        directory,
        ": expected a folder with a folder of images for each class, got none (--data or "
        "data.path names the folder of train/ and test/)"));
  }
  if (!names.ok()) return names.status();
  ImageFolder folder;
  folder.directory = directory;
  for (const std::string& name : *names) {
    std::error_code error;
    const fs::path path = fs::path(directory) / name;
    if (!fs::is_directory(path, error)) continue;
    if (absl::Status status = AddClass(path, folder); !status.ok()) return status;
  }
  if (folder.classes.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        directory, ": expected a folder of images for each of two or more classes, got ",
        folder.classes.size()));
  }
  return folder;
}

absl::StatusOr<ImageFolder> ReadTestImageFolder(const std::string& directory,
                                                const ImageFolder& train) {
  std::error_code error;
  const bool has_test = fs::is_directory(absl::StrCat(directory, "/test"), error);
  const bool has_val = fs::is_directory(absl::StrCat(directory, "/val"), error);
  if (!has_test && !has_val) {
    return absl::NotFoundError(absl::StrCat(directory,
                                            ": expected test/ or val/ beside train/, got neither "
                                            "(training.evaluate: false does without)"));
  }
  absl::StatusOr<ImageFolder> test =
      ReadImageFolder(absl::StrCat(directory, has_test ? "/test" : "/val"));
  if (!test.ok()) return test.status();
  const std::string* const unknown = FirstMissing(test->classes, train.classes);
  const std::string* const absent = FirstMissing(train.classes, test->classes);
  if (unknown == nullptr && absent == nullptr) return test;
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: expected the same classes as in %s, got %s \"%s\"", test->directory, train.directory,
      unknown != nullptr ? "another," : "none named", unknown != nullptr ? *unknown : *absent));
}

absl::Status LoadImage(const ImageFolder& folder, int64_t index, const ImageSize& size,
                       uint8_t* planes) {
  const std::string path = folder.PathOf(index);
  const absl::StatusOr<std::string> bytes = ReadFileBytes(path, kMostFileBytes);
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<DecodedImage> image = DecodeImage(*bytes, size, path);
  if (!image.ok()) return image.status();
  ResizeToPlanes(*image, size.height, size.width, planes);
  return absl::OkStatus();
}

}  // namespace torchps
