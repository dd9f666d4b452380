#include "torchps/data/image/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/data/file/file_bytes.h"
#include "torchps/data/image/decode_image.h"

namespace torchps {
namespace {

namespace fs = std::filesystem;

// The largest image file. Cameras write far smaller files.
constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

absl::Status SystemError(const fs::path& path, const std::error_code& error) {
  return absl::ErrnoToStatus(error.value(), path.string());
}

bool EndsInOneOf(const std::string& name, const std::vector<absl::string_view>& endings) {
  const std::string lower = absl::AsciiStrToLower(name);
  return std::any_of(endings.begin(), endings.end(),
                     [&](absl::string_view ending) { return absl::EndsWith(lower, ending); });
}

// True for hidden names, and for the folder that macOS adds to archives.
bool IsHidden(const std::string& name) { return absl::StartsWith(name, ".") || name == "__MACOSX"; }

// Returns the names in `directory` except hidden names, in byte order.
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

// The type of a file by suffix. DecodeImage cannot read kOtherImage.
enum class Kind { kImage, kOtherImage, kNoImage };

Kind GetKind(const std::string& name) {
  if (EndsInOneOf(name, {".jpg", ".jpeg", ".jpe", ".jfif", ".pjpeg", ".pjp", ".png"})) {
    return Kind::kImage;
  }
  if (EndsInOneOf(name, {".avif", ".bmp", ".dcm", ".dng", ".exr",  ".gif", ".heic", ".heif", ".ico",
                         ".j2k",  ".jp2", ".jxl", ".pam", ".pbm",  ".pcx", ".pgm",  ".pnm",  ".ppm",
                         ".psd",  ".qoi", ".svg", ".tga", ".tiff", ".tif", ".webp"})) {
    return Kind::kOtherImage;
  }
  return Kind::kNoImage;
}

absl::Status OtherImage(const fs::path& path) {
  return absl::InvalidArgumentError(absl::StrCat(
      path.string(),
      ": expected JPEG or PNG images, got another kind (convert it, or move it away)"));
}

// Adds the file `name` in `folder.directory`.
absl::Status AddFile(const std::string& name, int32_t label, ImageFolder& folder) {
  switch (GetKind(name)) {
    case Kind::kImage:
      folder.files.push_back({name, label});
      return absl::OkStatus();
    case Kind::kOtherImage:
      return OtherImage(fs::path(folder.directory) / name);
    case Kind::kNoImage:
      ++folder.passed_over;
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status AddClass(const std::string& name, ImageFolder& folder) {
  const fs::path directory = fs::path(folder.directory) / name;
  const absl::StatusOr<std::vector<std::string>> files = NamesIn(directory);
  if (!files.ok()) return files.status();
  const auto label = static_cast<int32_t>(folder.classes.size());
  const int64_t before = folder.size();
  for (const std::string& file : *files) {
    std::error_code error;
    if (fs::is_directory(directory / file, error)) {
      return absl::InvalidArgumentError(
          absl::StrCat((directory / file).string(),
                       ": expected image files in a class's folder, got a folder below it"));
    }
    const absl::Status added = AddFile(absl::StrCat(name, "/", file), label, folder);
    if (!added.ok()) return added;
  }
  if (folder.size() == before) {
    return absl::InvalidArgumentError(absl::StrCat(
        directory.string(), ": expected at least one .jpg or .png file of the class, got none"));
  }
  folder.classes.push_back(name);
  return absl::OkStatus();
}

// Adds the image files in `prefix` below folder.directory and in subfolders. Ignores links to
// folders, because they could form a cycle.
absl::Status AddAllBelow(const std::string& prefix, ImageFolder& folder) {
  const fs::path directory = fs::path(folder.directory) / prefix;
  const absl::StatusOr<std::vector<std::string>> names = NamesIn(directory);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    std::error_code error;
    const fs::file_status status = fs::symlink_status(directory / name, error);
    const bool is_folder = fs::is_directory(status);
    const absl::Status added = is_folder
                                   ? AddAllBelow(absl::StrCat(prefix, name, "/"), folder)
                                   : AddFile(absl::StrCat(prefix, name), /*label=*/-1, folder);
    if (!added.ok()) return added;
  }
  return absl::OkStatus();
}

bool HasFolders(const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = NamesIn(directory);
  std::error_code error;
  return names.ok() && std::any_of(names->begin(), names->end(), [&](const std::string& name) {
           return fs::is_directory(fs::path(directory) / name, error);
         });
}

// Returns the first of `names` that is not in `others`, or null.
const std::string* FirstMissing(const std::vector<std::string>& names,
                                const std::vector<std::string>& others) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return !std::binary_search(others.begin(), others.end(), name);
  });
  return found == names.end() ? nullptr : &*found;
}

}  // namespace

std::string ImageFolder::MakePath(int64_t index) const {
  return absl::StrCat(directory, "/", files[index].name);
}

std::vector<std::string> ImageFolder::Names() const {
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const File& file : files) names.push_back(file.name);
  return names;
}

void ImageFolder::Limit(int64_t samples) {
  if (samples <= 0 || samples >= size()) return;
  std::vector<File> kept;
  kept.reserve(samples);
  // size() is far below 2^31, and samples is below size(), so the product does not overflow.
  for (int64_t i = 0; i < samples; ++i) kept.push_back(files[i * size() / samples]);
  files = std::move(kept);
}

absl::StatusOr<ImageFolder> ReadImageFolder(const std::string& directory, size_t least_classes) {
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
    if (!fs::is_directory(fs::path(directory) / name, error)) {
      ++folder.passed_over;
      continue;
    }
    if (absl::Status status = AddClass(name, folder); !status.ok()) return status;
  }
  if (folder.classes.size() < least_classes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: expected a folder of images for each class, at least %d, got %d",
                        directory, least_classes, folder.classes.size()));
  }
  return folder;
}

absl::StatusOr<ImageFolder> ReadTestImageFolder(const std::string& directory,
                                                size_t least_classes) {
  std::error_code error;
  const std::string test = absl::StrCat(directory, "/test");
  const std::string val = absl::StrCat(directory, "/val");
  const bool has_test = fs::is_directory(test, error);
  const bool has_val = fs::is_directory(val, error);
  if (!has_test && !has_val) {
    return absl::NotFoundError(absl::StrCat(directory,
                                            ": expected test/ or val/ next to train/, got neither "
                                            "(or set training.evaluate: false)"));
  }
  const bool takes_val = !has_test || (has_val && !HasFolders(test));
  return ReadImageFolder(takes_val ? val : test, least_classes);
}

absl::Status CheckSameClasses(const ImageFolder& train, const ImageFolder& test) {
  const std::string* const unknown = FirstMissing(test.classes, train.classes);
  const std::string* const absent = FirstMissing(train.classes, test.classes);
  if (unknown == nullptr && absent == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: expected the same classes as in %s, got %s \"%s\"", test.directory, train.directory,
      unknown != nullptr ? "another," : "none named", unknown != nullptr ? *unknown : *absent));
}

absl::StatusOr<ImageFolder> ReadUnlabelledImages(const std::string& path) {
  std::error_code error;
  ImageFolder folder;
  if (!fs::exists(path, error)) {
    return absl::NotFoundError(
        absl::StrCat(path, ": expected an image file or a folder of image files, got none"));
  }
  if (fs::is_directory(path, error)) {
    folder.directory = path;
    if (absl::Status status = AddAllBelow("", folder); !status.ok()) return status;
    std::sort(folder.files.begin(), folder.files.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
  } else {
    folder.directory =
        fs::path(path).has_parent_path() ? fs::path(path).parent_path().string() : ".";
    const std::string name = fs::path(path).filename().string();
    if (absl::Status status = AddFile(name, /*label=*/-1, folder); !status.ok()) return status;
  }
  if (folder.files.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected at least one .jpg or .png file, got none"));
  }
  return folder;
}

absl::Status LoadImage(const ImageFolder& folder, int64_t index, const ImageSize& size,
                       uint8_t* planes) {
  const std::string path = folder.MakePath(index);
  const absl::StatusOr<std::string> bytes = ReadFileBytes(path, kMaxFileBytes);
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<DecodedImage> image = DecodeImage(*bytes, size, path);
  if (!image.ok()) return image.status();
  ResizeToPlanes(*image, size.height, size.width, planes);
  return absl::OkStatus();
}

}  // namespace torchps
