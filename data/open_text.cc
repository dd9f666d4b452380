#include "data/open_text.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/file/file_bytes.h"
#include "data/opening.h"
#include "data/text/generated_text.h"
#include "data/text/token_file.h"
#include "data/text_dataset.h"
#include "data/token_dataset.h"

namespace torchps {
namespace {

// What the text source is without a file: long enough that a small model does not know it by heart.
constexpr int64_t kGeneratedTextBytes = 400'000;

// One in so many bytes of a text is kept for testing: its end.
constexpr int64_t kTextTestShare = 10;

absl::StatusOr<int64_t> Context(const JobSpec& job, const std::string& units) {
  const int64_t context = job.model().transformer().context();
  if (context >= 1) return context;
  return absl::InvalidArgumentError(absl::StrFormat(
      "model.transformer.context: expected 1 or more %s for data.source \"%s\", got %d", units,
      job.data().source(), context));
}

absl::StatusOr<std::unique_ptr<TokenFile>> OpenTokenFile(const std::string& path, int64_t context) {
  absl::StatusOr<std::unique_ptr<TokenFile>> file = TokenFile::Open(path);
  if (absl::IsNotFound(file.status())) {
    return absl::NotFoundError(absl::StrCat(
        path,
        ": expected a file of 16-bit tokens, got none (--data or data.path names the directory "
        "of train.bin and val.bin, as nanoGPT's prepare.py makes them)"));
  }
  if (file.ok() && (*file)->size() < context + 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected at least %d tokens, a sample of model.transformer.context = %d and the next "
        "one, got %d",
        path, context + 1, context, (*file)->size()));
  }
  return file;
}

}  // namespace

absl::StatusOr<DataSource> OpenText(const JobSpec& job, const std::string& path) {
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
  const int64_t test_bytes = text->size() / kTextTestShare;
  if (test_bytes < context + 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: expected at least %d bytes, so that a tenth of them holds a sample of "
                        "model.transformer.context = %d bytes, got %d",
                        name, (context + 1) * kTextTestShare, context, text->size()));
  }
  const size_t split = text->size() - test_bytes;
  DataSource source;
  source.train =
      std::make_shared<TextDataset>(text->substr(0, split), context, job.data().train_samples());
  if (WantsTest(job)) {
    source.test =
        std::make_shared<TextDataset>(text->substr(split), context, job.data().test_samples());
  }
  source.description =
      absl::StrFormat("%s, samples of %d bytes: %s", name, context, Counts(source));
  return source;
}

absl::StatusOr<DataSource> OpenTokens(const JobSpec& job, const std::string& directory) {
  const absl::StatusOr<int64_t> context = Context(job, "tokens");
  if (!context.ok()) return context.status();
  if (directory.empty()) return NeedsPath("tokens", "the directory of train.bin and val.bin");
  absl::StatusOr<std::unique_ptr<TokenFile>> train =
      OpenTokenFile(absl::StrCat(directory, "/train.bin"), *context);
  if (!train.ok()) return train.status();
  absl::StatusOr<std::unique_ptr<TokenFile>> test = std::unique_ptr<TokenFile>();
  if (WantsTest(job)) test = OpenTokenFile(absl::StrCat(directory, "/val.bin"), *context);
  if (!test.ok()) return test.status();

  int64_t vocabulary = job.data().tokens().vocabulary();
  if (vocabulary == 0) {
    vocabulary = 2;  // fewer would leave nothing to predict
    for (const TokenFile* file : {train->get(), test->get()}) {
      if (file == nullptr) continue;
      const absl::StatusOr<uint16_t> largest = file->Largest();
      if (!largest.ok()) return largest.status();
      vocabulary = std::max<int64_t>(vocabulary, *largest + 1);
    }
  }
  DataSource source;
  source.train = std::make_shared<TokenDataset>(*std::move(train), *context, vocabulary,
                                                job.data().train_samples());
  if (*test != nullptr) {
    source.test = std::make_shared<TokenDataset>(*std::move(test), *context, vocabulary,
                                                 job.data().test_samples());
  }
  source.description = absl::StrFormat("tokens of %s, %d different ones, samples of %d: %s",
                                       directory, vocabulary, *context, Counts(source));
  return source;
}

}  // namespace torchps
