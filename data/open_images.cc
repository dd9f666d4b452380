#include "data/open_images.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/file/file_bytes.h"
#include "data/image/cifar10.h"
#include "data/image/digits.h"
#include "data/image/idx.h"
#include "data/image/image_folder.h"
#include "data/image_dataset.h"
#include "data/image_folder_dataset.h"
#include "data/opening.h"

namespace torchps {
namespace {

int64_t MaxLabel(const ImageSet& images) {
  return *std::max_element(images.labels.begin(), images.labels.end());
}

std::map<std::string, std::string> TransformOf(const Normalization& normalization) {
  return {{"input", "(byte / 255 - input_mean) / input_deviation of each channel"},
          {"input_mean", JsonArray(normalization.mean)},
          {"input_deviation", JsonArray(normalization.deviation)}};
}

// Training and test images as datasets of one normalisation. `test` may have no image.
DataSource Images(ImageSet train, ImageSet test, int64_t classes, const std::string& name) {
  const Normalization normalization = MeasureNormalization(train);
  DataSource source;
  source.transform = TransformOf(normalization);
  source.description = absl::StrFormat("%s, %d classes, images %dx%dx%d", name, classes,
                                       train.channels, train.height, train.width);
  source.train = std::make_shared<ImageDataset>(std::move(train), normalization, classes);
  if (test.size() > 0) {
    source.test = std::make_shared<ImageDataset>(std::move(test), normalization, classes);
  }
  absl::StrAppend(&source.description, ": ", Counts(source));
  return source;
}

}  // namespace

absl::StatusOr<DataSource> OpenDigits(const JobSpec& job) {
  const int64_t train = job.data().train_samples();
  const int64_t test = WantsTest(job) ? job.data().test_samples() : 0;
  constexpr int64_t kMost = kMaxDataFileBytes / (28 * 28);
  if (train < 1 || train > kMost || test < 0 || test > kMost) {
    return absl::InvalidArgumentError(
        absl::StrFormat("data.train_samples, data.test_samples: expected 1 to %d generated digits "
                        "to train on and at most as many to test on, got %d and %d",
                        kMost, train, test));
  }
  return Images(GenerateDigits(train, job.seed(), DigitsPart::kTrain),
                GenerateDigits(test, job.seed(), DigitsPart::kTest), 10,
                absl::StrCat("generated digits of seed ", job.seed()));
}

absl::StatusOr<DataSource> OpenIdx(const JobSpec& job, const std::string& directory) {
  if (directory.empty()) {
    return NeedsPath("idx", "the directory of the IDX files (or --download, which fetches MNIST)");
  }
  absl::StatusOr<ImageSet> train = ReadIdxDirectory(directory, "train");
  if (!train.ok()) return train.status();
  // A last layer of one output would have nothing to choose from.
  const int64_t classes = std::max<int64_t>(MaxLabel(*train) + 1, 2);
  absl::StatusOr<ImageSet> test = ImageSet{};
  if (WantsTest(job)) {
    test = ReadIdxDirectory(directory, "t10k");
    if (!test.ok()) return test.status();
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
  return Images(*std::move(train), *std::move(test), classes,
                absl::StrCat("IDX files of ", directory));
}

absl::StatusOr<DataSource> OpenCifar10(const JobSpec& job, const std::string& directory) {
  if (directory.empty()) return NeedsPath("cifar10", "the directory of CIFAR-10's binary version");
  absl::StatusOr<ImageSet> train = ReadCifar10Train(directory);
  if (!train.ok()) return train.status();
  absl::StatusOr<ImageSet> test = ImageSet{};
  if (WantsTest(job)) test = ReadCifar10Test(directory);
  if (!test.ok()) return test.status();
  train->Limit(job.data().train_samples());
  test->Limit(job.data().test_samples());
  return Images(*std::move(train), *std::move(test), 10, absl::StrCat("CIFAR-10 of ", directory));
}

absl::StatusOr<DataSource> OpenImageFolder(const JobSpec& job, const std::string& directory) {
  if (directory.empty()) return NeedsPath("images", "the directory of train/CLASS/*.jpg");
  const ImagesSpec& spec = job.data().images();
  const ImageSize size{spec.channels(), spec.height(), spec.width()};
  absl::StatusOr<ImageFolder> train = ReadImageFolder(absl::StrCat(directory, "/train"));
  if (!train.ok()) return train.status();
  absl::StatusOr<ImageFolder> test = ImageFolder{};
  if (WantsTest(job)) {
    test = ReadTestImageFolder(directory, *train);
    if (!test.ok()) return test.status();
  }
  train->Limit(job.data().train_samples());
  test->Limit(job.data().test_samples());

  absl::StatusOr<Normalization> normalization = MeasureNormalization(*train, size);
  if (!normalization.ok()) return normalization.status();
  DataSource source;
  source.transform = TransformOf(*normalization);
  NameClasses(train->classes, source);
  source.description =
      absl::StrFormat("image files of %s, %d classes, images %dx%dx%d", directory,
                      train->classes.size(), size.channels, size.height, size.width);
  source.train = std::make_shared<ImageFolderDataset>(*std::move(train), size, *normalization);
  if (test->size() > 0) {
    source.test = std::make_shared<ImageFolderDataset>(*std::move(test), size, *normalization);
  }
  absl::StrAppend(&source.description, ": ", Counts(source));
  return source;
}

}  // namespace torchps
