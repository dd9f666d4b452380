#include "torchps/data/open_images.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/data/data_registry.h"
#include "torchps/data/download_mnist.h"
#include "torchps/data/file/file_bytes.h"
#include "torchps/data/image/digits.h"
#include "torchps/data/image/image_folder.h"
#include "torchps/data/image/image_sets.h"
#include "torchps/data/image_dataset.h"

namespace torchps {
namespace {

namespace fs = std::filesystem;

// Returns MNIST's folder in this machine's cache, or "" if it does not exist.
std::string CachedMnist() {
  const absl::StatusOr<std::string> folder = MnistFolder();
  std::error_code error;
  return folder.ok() && fs::is_directory(*folder, error) ? *folder : "";
}

int64_t MaxLabel(const ImageSet& images) {
  return *std::max_element(images.labels.begin(), images.labels.end());
}

Normalization GetNormalization(const Preprocessing& preprocessing) {
  return {{preprocessing.input_mean.begin(), preprocessing.input_mean.end()},
          {preprocessing.input_deviation.begin(), preprocessing.input_deviation.end()}};
}

Preprocessing ParsePreprocessing(const Normalization& normalization, const ImageSize& size,
                                 int64_t classes, std::vector<std::string> class_names = {}) {
  Preprocessing result;
  result.input_mean.assign(normalization.mean.begin(), normalization.mean.end());
  result.input_deviation.assign(normalization.deviation.begin(), normalization.deviation.end());
  result.channels = size.channels;
  result.height = size.height;
  result.width = size.width;
  result.classes = classes;
  result.class_names = std::move(class_names);
  return result;
}

ImageSize GetSize(const ImageSet& images) { return {images.channels, images.height, images.width}; }

bool operator==(const ImageSize& a, const ImageSize& b) {
  return a.channels == b.channels && a.height == b.height && a.width == b.width;
}

std::string Text(const ImageSize& size) {
  return absl::StrFormat("%dx%dx%d", size.channels, size.height, size.width);
}

// Returns `known`, the model's preprocessing, if it has the shape and classes of `measured`.
// Otherwise returns `measured`, the preprocessing measured on the job's images. If `known` scales
// differently, says so in `description`.
Preprocessing Chosen(const Preprocessing& known, Preprocessing measured, std::string& description) {
  const bool fits = known.is_images() && known.channels == measured.channels &&
                    known.height == measured.height && known.width == measured.width &&
                    known.classes == measured.classes && known.class_names == measured.class_names;
  if (!fits) return measured;
  if (known.input_mean != measured.input_mean ||
      known.input_deviation != measured.input_deviation) {
    absl::StrAppend(&description, ", scaled as the model's own training data were");
  }
  return known;
}

std::shared_ptr<const Dataset> MakeDataset(ImageSet images, const Preprocessing& preprocessing) {
  return std::make_shared<ImageDataset>(std::move(images), GetNormalization(preprocessing),
                                        preprocessing.classes);
}

// Opens training and test images with the same preprocessing. `test` may be empty.
absl::StatusOr<DataSource> Images(const JobSpec& job, ImageSet train, ImageSet test,
                                  int64_t classes, const std::string& name) {
  const absl::StatusOr<Preprocessing> known = KnownPreprocessing(job);
  if (!known.ok()) return known.status();
  DataSource source;
  source.description =
      absl::StrFormat("%s, %d classes, images %s", name, classes, Text(GetSize(train)));
  source.preprocessing =
      Chosen(*known, ParsePreprocessing(MeasureNormalization(train), GetSize(train), classes),
             source.description);
  source.train = MakeDataset(std::move(train), source.preprocessing);
  if (test.size() > 0) source.test = MakeDataset(std::move(test), source.preprocessing);
  absl::StrAppend(&source.description, ": ", Counts(source));
  source.test_description = absl::StrCat("the test images of ", name);
  return source;
}

// Returns the model's preprocessing. INVALID_ARGUMENT: the model was not trained on images.
absl::StatusOr<Preprocessing> ImagesOfModel(const JobSpec& job) {
  absl::StatusOr<Preprocessing> known = KnownPreprocessing(job);
  if (known.ok() && !known->is_images()) return NotTrainedOn("images", job);
  return known;
}

// Opens images for a trained model: `test`, and the training images if available.
absl::StatusOr<DataSource> ImagesToUse(const JobSpec& job, const Preprocessing& known,
                                       std::optional<ImageSet> train, ImageSet test,
                                       const std::string& name) {
  const ImageSize expected{known.channels, known.height, known.width};
  if (!(GetSize(test) == expected)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: expected images of %s, as in the model's training, got %s", name,
                        Text(expected), Text(GetSize(test))));
  }
  if (test.has_answers && known.classes > 0 && MaxLabel(test) >= known.classes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: expected labels of 0 to %d, as in the model's training, got %d", name,
                        known.classes - 1, MaxLabel(test)));
  }
  test.Limit(job.data().test_samples());
  DataSource source;
  source.preprocessing = known;
  source.description = absl::StrFormat("%s, images %s", name, Text(expected));
  source.test = MakeDataset(std::move(test), known);
  source.train = source.test;
  if (train.has_value() && GetSize(*train) == expected) {
    train->Limit(job.data().train_samples());
    source.train = MakeDataset(*std::move(train), known);
  }
  source.test_description = absl::StrCat("the test images of ", name);
  return source;
}

std::shared_ptr<const Dataset> MakeDataset(ImageFolder folder, const Preprocessing& preprocessing) {
  return std::make_shared<ImageFolderDataset>(
      std::move(folder),
      ImageSize{preprocessing.channels, preprocessing.height, preprocessing.width},
      GetNormalization(preprocessing), preprocessing.classes);
}

// Changes the class numbers in `folder` to the model's.
absl::Status Relabel(const Preprocessing& known, ImageFolder& folder) {
  std::vector<int32_t> labels;
  for (const std::string& name : folder.classes) {
    const auto found = std::find(known.class_names.begin(), known.class_names.end(), name);
    if (found == known.class_names.end()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: the model was not trained on the class \"%s\"; move its folder away",
                          folder.directory, name));
    }
    labels.push_back(static_cast<int32_t>(found - known.class_names.begin()));
  }
  for (ImageFolder::File& file : folder.files) file.label = labels[file.label];
  return absl::OkStatus();
}

std::string PassedOver(const ImageFolder& folder) {
  return folder.passed_over == 0 ? ""
                                 : absl::StrCat(", ", folder.passed_over, " files passed over");
}

// Opens DIRECTORY/test, DIRECTORY/val or DIRECTORY, with a folder for each class.
absl::StatusOr<DataSource> ImageFolderToEvaluate(const JobSpec& job, const std::string& directory) {
  const absl::StatusOr<Preprocessing> known = ImagesOfModel(job);
  if (!known.ok()) return known.status();
  absl::StatusOr<ImageFolder> test = ReadTestImageFolder(directory, /*least_classes=*/1);
  if (absl::IsNotFound(test.status())) test = ReadImageFolder(directory, /*least_classes=*/1);
  if (!test.ok()) return test.status();
  if (absl::Status status = Relabel(*known, *test); !status.ok()) return status;
  test->Limit(job.data().test_samples());
  DataSource source;
  source.preprocessing = *known;
  source.description = absl::StrCat("image files of ", test->directory, PassedOver(*test));
  source.test_description = absl::StrCat("the images of ", test->directory);
  source.test = source.train = MakeDataset(*std::move(test), *known);
  std::error_code unknown;
  if (fs::is_directory(absl::StrCat(directory, "/train"), unknown)) {
    absl::StatusOr<ImageFolder> train = ReadImageFolder(absl::StrCat(directory, "/train"));
    if (!train.ok()) return train.status();
    if (absl::Status status = Relabel(*known, *train); !status.ok()) return status;
    train->Limit(job.data().train_samples());
    source.train = MakeDataset(*std::move(train), *known);
  }
  return source;
}

// Opens unlabeled images: an image file, a folder of images, or a file in the source's format.
absl::StatusOr<DataSource> ImagesToPredict(const JobSpec& job, const std::string& path) {
  const absl::StatusOr<Preprocessing> known = ImagesOfModel(job);
  if (!known.ok()) return known.status();
  DataSource source;
  source.preprocessing = *known;
  source.description = source.test_description = absl::StrCat("the images of ", path);
  if (absl::StrContains(path, "idx3-ubyte")) {
    absl::StatusOr<ImageSet> images = ReadIdxImages(path);
    if (!images.ok()) return images.status();
    return ImagesToUse(job, *known, std::nullopt, *std::move(images), path);
  }
  if (job.data().source() == "cifar10" && absl::EndsWith(path, ".bin")) {
    const fs::path file(path);
    absl::StatusOr<ImageSet> images = ReadCifar10(
        file.parent_path().empty() ? "." : file.parent_path().string(), {file.filename().string()});
    if (!images.ok()) return images.status();
    return ImagesToUse(job, *known, std::nullopt, *std::move(images), path);
  }
  absl::StatusOr<ImageFolder> folder = ReadUnlabelledImages(path);
  if (!folder.ok()) return folder.status();
  absl::StrAppend(&source.description, PassedOver(*folder));
  source.sample_names = folder->Names();
  source.test = source.train = MakeDataset(*std::move(folder), *known);
  return source;
}

// Opens test images from the results of reading the two parts of a data set. The training images
// may be missing: `train` may be NOT_FOUND.
absl::StatusOr<DataSource> ImagesToEvaluate(const JobSpec& job, absl::StatusOr<ImageSet> train,
                                            absl::StatusOr<ImageSet> test,
                                            const std::string& name) {
  const absl::StatusOr<Preprocessing> known = ImagesOfModel(job);
  if (!known.ok()) return known.status();
  if (!train.ok() && !absl::IsNotFound(train.status())) return train.status();
  if (!test.ok()) return test.status();
  std::optional<ImageSet> either;
  if (train.ok()) either = *std::move(train);
  return ImagesToUse(job, *known, std::move(either), *std::move(test), name);
}

}  // namespace

absl::StatusOr<DataSource> OpenDigits(const JobSpec& job, const std::string& path) {
  if (job.data().use() == PREDICTION) return ImagesToPredict(job, path);
  if (!path.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.source \"digits\" generates its images and does not read files, got data.path ", path,
        " (leave out --data, or set data.source)"));
  }
  const int64_t train = job.data().train_samples();
  const int64_t test = WantsTest(job) ? job.data().test_samples() : 0;
  constexpr int64_t kMax = kMaxDataFileBytes / (28 * 28);
  if (train < 1 || train > kMax || test < 0 || test > kMax) {
    return absl::InvalidArgumentError(
        absl::StrFormat("data.train_samples, data.test_samples: expected 1 to %d generated digits "
                        "for training and at most as many for testing, got %d and %d",
                        kMax, train, test));
  }
  return Images(job, GenerateDigits(train, job.seed(), DigitsPart::kTrain),
                GenerateDigits(test, job.seed(), DigitsPart::kTest), 10,
                absl::StrCat("generated digits of seed ", job.seed()));
}

absl::StatusOr<DataSource> OpenIdx(const JobSpec& job, const std::string& path) {
  const std::string directory = path.empty() ? CachedMnist() : path;
  if (directory.empty()) {
    return NeedsPath("idx", "the directory of the IDX files (or use --download to download MNIST)");
  }
  if (job.data().use() == PREDICTION) return ImagesToPredict(job, directory);
  const std::string name = absl::StrCat("IDX files of ", directory);
  absl::StatusOr<ImageSet> train = ReadIdxDirectory(directory, "train");
  absl::StatusOr<ImageSet> test = ImageSet{};
  if (WantsTest(job)) test = ReadIdxDirectory(directory, "t10k");
  if (job.data().use() == EVALUATION) {
    return ImagesToEvaluate(job, std::move(train), std::move(test), name);
  }
  if (!train.ok()) return train.status();
  if (!test.ok()) return test.status();
  // At least two classes, because a model needs a choice.
  const int64_t classes = std::max<int64_t>(MaxLabel(*train) + 1, 2);
  if (test->size() > 0) {
    if (test->height != train->height || test->width != train->width) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: expected test images of %dx%d pixels, as the training images have, got %dx%d",
          directory, train->height, train->width, test->height, test->width));
    }
    if (MaxLabel(*test) >= classes) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: expected test labels of 0 to %d, as the training labels are, got %d",
                          directory, classes - 1, MaxLabel(*test)));
    }
  }
  train->Limit(job.data().train_samples());
  test->Limit(job.data().test_samples());
  return Images(job, *std::move(train), *std::move(test), classes, name);
}

absl::StatusOr<DataSource> OpenCifar10(const JobSpec& job, const std::string& directory) {
  if (directory.empty()) return NeedsPath("cifar10", "the directory of CIFAR-10's binary version");
  if (job.data().use() == PREDICTION) return ImagesToPredict(job, directory);
  const std::string name = absl::StrCat("CIFAR-10 of ", directory);
  absl::StatusOr<ImageSet> train = ReadCifar10Train(directory);
  absl::StatusOr<ImageSet> test = ImageSet{};
  if (WantsTest(job)) test = ReadCifar10Test(directory);
  if (job.data().use() == EVALUATION) {
    return ImagesToEvaluate(job, std::move(train), std::move(test), name);
  }
  if (!train.ok()) return train.status();
  if (!test.ok()) return test.status();
  train->Limit(job.data().train_samples());
  test->Limit(job.data().test_samples());
  return Images(job, *std::move(train), *std::move(test), 10, name);
}

absl::StatusOr<DataSource> OpenImageFolder(const JobSpec& job, const std::string& directory) {
  if (directory.empty()) return NeedsPath("images", "the directory of train/CLASS/*.jpg");
  if (job.data().use() == PREDICTION) return ImagesToPredict(job, directory);
  if (job.data().use() == EVALUATION) return ImageFolderToEvaluate(job, directory);
  const ImagesSpec& spec = job.data().images();
  const ImageSize size{spec.channels(), spec.height(), spec.width()};
  const absl::StatusOr<Preprocessing> known = KnownPreprocessing(job);
  if (!known.ok()) return known.status();
  absl::StatusOr<ImageFolder> train = ReadImageFolder(absl::StrCat(directory, "/train"));
  if (!train.ok()) return train.status();
  absl::StatusOr<ImageFolder> test = ImageFolder{};
  if (WantsTest(job)) {
    test = ReadTestImageFolder(directory);
    if (!test.ok()) return test.status();
    if (absl::Status same = CheckSameClasses(*train, *test); !same.ok()) return same;
  }
  train->Limit(job.data().train_samples());
  test->Limit(job.data().test_samples());

  absl::StatusOr<Normalization> normalization = MeasureNormalization(*train, size);
  if (!normalization.ok()) return normalization.status();
  const int64_t classes = train->classes.size();
  DataSource source;
  source.description = absl::StrFormat("image files of %s, %d classes, images %s%s", directory,
                                       classes, Text(size), PassedOver(*train));
  source.preprocessing =
      Chosen(*known, ParsePreprocessing(*normalization, size, classes, train->classes),
             source.description);
  source.train = MakeDataset(*std::move(train), source.preprocessing);
  if (test->size() > 0) source.test = MakeDataset(*std::move(test), source.preprocessing);
  absl::StrAppend(&source.description, ": ", Counts(source));
  return source;
}

}  // namespace torchps
