#include "torchps/data/text_dataset.h"

#include <torch/types.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "torchps/common/check.h"
#include "torchps/data/dataset.h"

namespace torchps {

TextDataset::TextDataset(std::string text, int64_t context, int64_t samples)
    : text_(std::move(text)),
      context_(context),
      size_((static_cast<int64_t>(text_.size()) - 1) / context) {
  TPS_CHECK(size_ >= 1, "a text holds at least one sample");
  if (samples > 0) size_ = std::min(size_, samples);
}

DataShape TextDataset::shape() const {
  DataShape shape;
  shape.context = context_;
  shape.classes = 256;
  return shape;
}

absl::StatusOr<Batch> TextDataset::Get(absl::Span<const int64_t> indices) const {
  const int64_t rows = indices.size();
  Batch batch{torch::empty({rows, context_}, torch::kInt64),
              torch::empty({rows, context_}, torch::kInt64)};
  int64_t* input = batch.input.data_ptr<int64_t>();
  int64_t* target = batch.target.data_ptr<int64_t>();
  for (int64_t index : indices) {
    TPS_DCHECK(index >= 0 && index < size(), "a sample's index is inside the dataset");
    const char* byte = text_.data() + index * context_;
    for (int64_t t = 0; t < context_; ++t) {
      *input++ = static_cast<uint8_t>(byte[t]);
      *target++ = static_cast<uint8_t>(byte[t + 1]);
    }
  }
  return batch;
}

uint32_t TextDataset::Fingerprint() const {
  return FingerprintOfSamples(*this, Fingerprinted::kAllNumbers);
}

TokenDataset::TokenDataset(std::unique_ptr<const TokenFile> file, int64_t context,
                           int64_t vocabulary, int64_t samples)
    : file_(std::move(file)),
      context_(context),
      vocabulary_(vocabulary),
      size_((file_->size() - 1) / context) {
  TPS_CHECK(size_ >= 1, "a file of tokens holds at least one sample");
  if (samples > 0) size_ = std::min(size_, samples);
}

DataShape TokenDataset::shape() const {
  DataShape shape;
  shape.context = context_;
  shape.classes = vocabulary_;
  return shape;
}

absl::StatusOr<Batch> TokenDataset::Get(absl::Span<const int64_t> indices) const {
  const int64_t rows = indices.size();
  Batch batch{torch::empty({rows, context_}, torch::kInt64),
              torch::empty({rows, context_}, torch::kInt64)};
  int64_t* input = batch.input.data_ptr<int64_t>();
  int64_t* target = batch.target.data_ptr<int64_t>();
  std::vector<int32_t> tokens(context_ + 1);
  for (int64_t index : indices) {
    TPS_DCHECK(index >= 0 && index < size(), "a sample's index is inside the dataset");
    const int64_t first = index * context_;
    if (absl::Status read = file_->Read(first, context_ + 1, tokens.data()); !read.ok()) {
      return read;
    }
    for (int64_t t = 0; t <= context_; ++t) {
      // A larger token would read past the end of an embedding.
      if (tokens[t] < vocabulary_) continue;
      return absl::DataLossError(
          absl::StrFormat("%s: expected tokens of 0 to %d, got %d at token %d "
                          "(data.tokens.vocabulary sets their number)",
                          file_->path(), vocabulary_ - 1, tokens[t], first + t));
    }
    input = std::copy_n(tokens.data(), context_, input);
    target = std::copy_n(tokens.data() + 1, context_, target);
  }
  return batch;
}

uint32_t TokenDataset::Fingerprint() const {
  return FingerprintOfSamples(*this, Fingerprinted::kAllNumbers);
}

}  // namespace torchps
