#include "torchps/data/open_text.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/data/data_registry.h"
#include "torchps/data/file/file_bytes.h"
#include "torchps/data/text/generated_text.h"
#include "torchps/data/text/token_file.h"
#include "torchps/data/text_dataset.h"

namespace torchps {
namespace {

// Size of the generated text if there is no file. Long enough that a small model cannot memorize
// it.
constexpr int64_t kGeneratedTextBytes = 400'000;

// The last 1 / kTextTestShare of a text is the test set.
constexpr int64_t kTextTestShare = 10;

// The limit of data.tokens.vocabulary (torchps/job/job_spec.cc).
constexpr int64_t kMaxVocabulary = int64_t{1} << 24;

absl::StatusOr<int64_t> Context(const JobSpec& job, const std::string& units) {
  const int64_t context = job.model().transformer().context();
  if (context >= 1) return context;
  return absl::InvalidArgumentError(absl::StrFormat(
      "model.transformer.context: expected 1 or more %s for data.source \"%s\", got %d", units,
      job.data().source(), context));
}

absl::StatusOr<std::unique_ptr<TokenFile>> OpenTokenFile(const JobSpec& job,
                                                         const std::string& path, int64_t context) {
  absl::StatusOr<std::unique_ptr<TokenFile>> file =
      TokenFile::Open(path, job.data().tokens().bits());
  if (absl::IsNotFound(file.status())) {
    return absl::NotFoundError(absl::StrCat(
        path,
        ": expected a file of tokens, got none (--data or data.path names the directory of "
        "train.bin and val.bin, as nanoGPT's prepare.py makes them, or of train.npy and val.npy)"));
  }
  if (file.ok() && (*file)->size() < context + 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected at least %d tokens, a sample of model.transformer.context = %d and the next "
        "one, got %d",
        path, context + 1, context, (*file)->size()));
  }
  return file;
}

// Returns the job's vocabulary, or one more than the largest token in `files`. INVALID_ARGUMENT: a
// token in `files` exceeds the limit of data.tokens.vocabulary.
absl::StatusOr<int64_t> Vocabulary(const JobSpec& job, const std::vector<const TokenFile*>& files) {
  if (job.data().tokens().vocabulary() > 0) return job.data().tokens().vocabulary();
  int64_t vocabulary = 2;  // at least two, because a model needs a choice
  for (const TokenFile* file : files) {
    if (file == nullptr) continue;
    const absl::StatusOr<int32_t> largest = file->Largest();
    if (!largest.ok()) return largest.status();
    if (*largest >= kMaxVocabulary) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: expected tokens of 0 to %d, got %d (the file is damaged, or its tokens are not of "
          "%d bits: see data.tokens.bits)",
          file->path(), kMaxVocabulary - 1, *largest, file->bits()));
    }
    vocabulary = std::max<int64_t>(vocabulary, int64_t{*largest} + 1);
  }
  return vocabulary;
}

// Holds one sample of zeros in the shape of a model's samples.
class BlankText : public Dataset {
 public:
  explicit BlankText(const Preprocessing& preprocessing) {
    shape_.context = preprocessing.context;
    shape_.classes = preprocessing.classes;
  }

  int64_t size() const override { return 1; }
  DataShape shape() const override { return shape_; }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    const int64_t rows = indices.size();
    return Batch{torch::zeros({rows, shape_.context}, torch::kInt64), torch::Tensor()};
  }

 private:
  DataShape shape_;
};

// Returns the data for a model that gets a prompt: only the shape is used.
absl::StatusOr<DataSource> DataOfPrompt(const JobSpec& job) {
  const absl::StatusOr<Preprocessing> known = KnownPreprocessing(job);
  if (!known.ok()) return known.status();
  if (!known->is_text()) return NotTrainedOn(job.data().source(), job);
  DataSource source;
  source.preprocessing = *known;
  source.description = source.test_description = "a prompt";
  source.test = source.train = std::make_shared<BlankText>(*known);
  return source;
}

// Opens `path`: a directory that contains val.bin, or a file of tokens.
absl::StatusOr<DataSource> TokensToUse(const JobSpec& job, const std::string& path,
                                       int64_t context) {
  const absl::StatusOr<Preprocessing> known = KnownPreprocessing(job);
  if (!known.ok()) return known.status();
  if (!known->is_text()) return NotTrainedOn("tokens", job);
  std::error_code unknown;
  const bool is_file = std::filesystem::is_regular_file(path, unknown);
  const std::string test_path = is_file ? path : TokenPath(path, "val");
  absl::StatusOr<std::unique_ptr<TokenFile>> test = OpenTokenFile(job, test_path, context);
  if (!test.ok()) return test.status();
  DataSource source;
  source.preprocessing = *known;
  source.description = source.test_description = absl::StrCat("the tokens of ", test_path);
  source.test = source.train = std::make_shared<TokenDataset>(
      *std::move(test), context, known->classes, job.data().test_samples());
  const std::string train_path = TokenPath(path, "train");
  if (is_file || !std::filesystem::exists(train_path, unknown)) return source;
  absl::StatusOr<std::unique_ptr<TokenFile>> train = OpenTokenFile(job, train_path, context);
  if (!train.ok()) return train.status();
  source.train = std::make_shared<TokenDataset>(*std::move(train), context, known->classes,
                                                job.data().train_samples());
  return source;
}

absl::Status TextTooShort(const std::string& name, int64_t least, const std::string& text) {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: expected at least %d bytes, a sample of model.transformer.context bytes "
                      "and the next byte, got %d",
                      name, least, text.size()));
}

// Uses the last tenth of the text as the test set.
absl::StatusOr<DataSource> SplitText(const JobSpec& job, const std::string& text, int64_t context,
                                     const std::string& name) {
  const int64_t test_bytes = text.size() / kTextTestShare;
  if (test_bytes < context + 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected at least %d bytes, because a tenth of them must hold a sample of "
        "model.transformer.context = %d bytes, got %d",
        name, (context + 1) * kTextTestShare, context, text.size()));
  }
  const size_t split = text.size() - test_bytes;
  DataSource source;
  source.train =
      std::make_shared<TextDataset>(text.substr(0, split), context, job.data().train_samples());
  if (WantsTest(job)) {
    source.test =
        std::make_shared<TextDataset>(text.substr(split), context, job.data().test_samples());
  }
  source.preprocessing.context = context;
  source.preprocessing.classes = source.train->shape().classes;
  source.preprocessing.training_data = source.train->Fingerprint();
  source.description =
      absl::StrFormat("%s, samples of %d bytes: %s", name, context, Counts(source));
  return source;
}

}  // namespace

absl::StatusOr<DataSource> OpenText(const JobSpec& job, const std::string& path) {
  if (job.data().use() == PREDICTION && path.empty()) return DataOfPrompt(job);
  const absl::StatusOr<int64_t> given = Context(job, "bytes");
  if (!given.ok()) return given.status();
  const int64_t context = *given;
  absl::StatusOr<std::string> text =
      path.empty() ? GenerateText(kGeneratedTextBytes, job.seed()) : ReadFileBytes(path);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(absl::StrCat(
        path,
        ": expected a text file, got none (name it with --data or data.path, or leave both "
        "empty for generated text)"));
  }
  if (!text.ok()) return text.status();

  const std::string name = path.empty() ? absl::StrCat("generated text of seed ", job.seed())
                                        : absl::StrCat("text of ", path);
  const absl::StatusOr<Preprocessing> known = KnownPreprocessing(job);
  if (!known.ok()) return known.status();
  absl::StatusOr<DataSource> source = SplitText(job, *text, context, name);
  if (job.data().use() == TRAINING) return source;
  if (!known->is_text()) return NotTrainedOn("text", job);
  const bool is_known = source.ok() && known->training_data != 0 &&
                        source->preprocessing.training_data == known->training_data;
  if (is_known && job.data().use() == EVALUATION) {
    source->test_description = absl::StrCat("the last tenth of the ", name);
    return source;
  }
  if (static_cast<int64_t>(text->size()) < context + 1)
    return TextTooShort(name, context + 1, *text);
  DataSource all;
  all.test = all.train = std::make_shared<TextDataset>(*std::move(text), context, /*samples=*/0);
  all.preprocessing = *known;
  all.description = name;
  all.test_description = absl::StrCat("all of the ", name);
  return all;
}

absl::StatusOr<DataSource> OpenTokens(const JobSpec& job, const std::string& directory) {
  if (job.data().use() == PREDICTION && directory.empty()) return DataOfPrompt(job);
  const absl::StatusOr<int64_t> context = Context(job, "tokens");
  if (!context.ok()) return context.status();
  if (directory.empty()) return NeedsPath("tokens", "the directory of train.bin and val.bin");
  if (job.data().use() != TRAINING) return TokensToUse(job, directory, *context);
  absl::StatusOr<std::unique_ptr<TokenFile>> train =
      OpenTokenFile(job, TokenPath(directory, "train"), *context);
  if (!train.ok()) return train.status();
  absl::StatusOr<std::unique_ptr<TokenFile>> test = std::unique_ptr<TokenFile>();
  if (WantsTest(job)) test = OpenTokenFile(job, TokenPath(directory, "val"), *context);
  if (!test.ok()) return test.status();
  const absl::StatusOr<int64_t> vocabulary = Vocabulary(job, {train->get(), test->get()});
  if (!vocabulary.ok()) return vocabulary.status();

  const int bits = (*train)->bits();
  DataSource source;
  source.train = std::make_shared<TokenDataset>(*std::move(train), *context, *vocabulary,
                                                job.data().train_samples());
  if (*test != nullptr) {
    source.test = std::make_shared<TokenDataset>(*std::move(test), *context, *vocabulary,
                                                 job.data().test_samples());
  }
  source.preprocessing.context = *context;
  source.preprocessing.classes = *vocabulary;
  source.preprocessing.training_data = source.train->Fingerprint();
  source.description =
      absl::StrFormat("tokens of %s, %d bits each, %d different ones, samples of %d: %s", directory,
                      bits, *vocabulary, *context, Counts(source));
  return source;
}

}  // namespace torchps
