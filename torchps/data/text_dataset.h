#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torchps/data/dataset.h"
#include "torchps/data/text/token_file.h"

namespace torchps {

// Provides a text as a language model's samples. Sample i contains `context` bytes from i * context
// on; the target is shifted by one byte. So samples do not overlap, an epoch predicts each byte
// once, and up to `context` bytes at the end are unused. Batches are int64 [B, T] for input and
// target. Immutable.
class TextDataset : public Dataset {
 public:
  // Keeps at most `samples` samples; 0 keeps all. REQUIRES: context >= 1 and text.size() >= context
  // + 1.
  TextDataset(std::string text, int64_t context, int64_t samples);

  int64_t size() const override { return size_; }
  DataShape shape() const override;
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override;
  uint32_t Fingerprint() const override;

 private:
  const std::string text_;
  const int64_t context_;
  int64_t size_;
};

// Provides samples for a language model from a file of tokens. The input of sample i is the
// `context` tokens from i * context on; the target is shifted by one token, as in TextDataset.
// Batches are int64 [B, T] for input and target, and Get() reads them from the file.
//
// Get() returns the errors of TokenFile::Read, and DATA_LOSS if a token is not below `vocabulary`.
class TokenDataset : public Dataset {
 public:
  // Keeps at most `samples` samples; 0 keeps all. Tokens must be below `vocabulary`. REQUIRES:
  // context >= 1, file->size() >= context + 1.
  TokenDataset(std::unique_ptr<const TokenFile> file, int64_t context, int64_t vocabulary,
               int64_t samples);

  int64_t size() const override { return size_; }
  DataShape shape() const override;
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override;
  uint32_t Fingerprint() const override;

 private:
  const std::unique_ptr<const TokenFile> file_;
  const int64_t context_;
  const int64_t vocabulary_;
  int64_t size_;
};

}  // namespace torchps
